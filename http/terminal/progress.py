"""Progress on a terminal or in a pipe: of a download, and of a probe's findings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
import trio

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.streams import try_print
from greenroom.schemas.events.events import Failed
from greenroom.schemas.models.capabilities import ProbedCapabilities, findings_of
from greenroom.schemas.protocols.download_protocol import DownloadProgress, size_text
from greenroom.schemas.protocols.pool_protocol import PoolMessage, Probed, ProbeModel, ProbeProgress

_LINE_SECONDS = 10.0  # Seconds between two lines in a pipe

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
    """Prints the progress as plain lines on standard error, at most one each ten seconds. `clock`: function
    that returns the time in seconds.
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


async def print_findings(pool: Ref[PoolMessage], message: ProbeModel, *, as_json: bool) -> int:
    """Run a probe and print its findings; return the exit status. Raises ClickException: the model cannot be
    probed.
    """
    text = findings_text(findings_of(await _probe(pool, message)), as_json=as_json)
    printed = await trio.to_thread.run_sync(try_print, f"{text}\n", abandon_on_cancel=True)
    return ExitStatus.DONE if printed else ExitStatus.FAILED


def findings_text(found: Mapping[str, object], *, as_json: bool) -> str:
    """Return findings as text. `as_json`: True for one JSON object, false for a line for each finding."""
    if as_json:
        return json.dumps(found, indent=2)
    return "\n".join(f"{name}: {_in_words(value)}" for name, value in found.items() if value is not None)


@contextmanager
def probe_progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, if that is a terminal; yield a function for the answered and all questions."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=None)

        def show(answered: int, questions: int) -> None:
            progress.update(task, description="asking", completed=answered, total=questions)

        yield show


async def _probe(pool: Ref[PoolMessage], message: ProbeModel) -> ProbedCapabilities:
    with probe_progress() as show:
        try:
            with await pool.stream(message) as replies:
                async for event in replies:
                    match event:
                        case ProbeProgress(answered, questions):
                            show(answered, questions)
                        case Failed(problem):
                            raise click.ClickException(problem.detail)
                        case Probed(record):
                            return record
        except ActorStopped:
            pass
    raise click.ClickException("the probe was interrupted")


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
