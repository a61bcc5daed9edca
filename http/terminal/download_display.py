"""Display of a download's progress: a bar on a terminal, lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from greenroom.schemas.protocols.download_protocol import DownloadProgress, size_text

_LINE_SECONDS = 10.0
"""Seconds between two lines in a pipe."""

_WAITING = "another process fetches the same model; waiting for it"

Show = Callable[[DownloadProgress], None]


@contextmanager
def download_bar() -> Iterator[Show]:
    """Show the progress as a bar on standard error, from the first byte to the end of the block."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking the hub", total=None)

        def show(progress: DownloadProgress) -> None:
            what = _WAITING if progress.stage == "waiting" else progress.stage
            total = progress.nbytes or None
            bar.update(task, description=what, total=total, completed=progress.received)

        yield show


class DownloadLines:
    """Prints the progress as plain lines on standard error, at most one each ten seconds.

    Args:
        clock: Function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._printed = clock()
        self._waited = False

    def show(self, progress: DownloadProgress) -> None:
        """Print the progress, unless it was printed just before."""
        if progress.stage == "waiting" and not self._waited:
            self._waited = True
            click.echo(_WAITING, err=True)
        if progress.stage != "downloading" or self._clock() - self._printed < _LINE_SECONDS:
            return
        self._printed = self._clock()
        share = progress.received / max(1, progress.nbytes)
        speed = f"{progress.rate / 1e6:.1f} MB/s"
        click.echo(f"{share:.0%} of {size_text(progress.nbytes)}, {speed}", err=True)
