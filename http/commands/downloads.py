"""Download of missing hub models before a command starts."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.process.exit_status import status_of_signal
from greenroom.http.terminal.progress import download_bar
from greenroom.http.terminal.streams import without_home
from greenroom.schemas.models.model_description import Download
from greenroom.schemas.protocols.download_protocol import DownloadProgress, size_text
from greenroom.schemas.settings.settings import Settings

_SHOW_CURSOR = b"\x1b[?25h\n"
"""Control sequence (DECTCEM) that shows the cursor, which a progress bar has hidden."""


def fetch_missing(local: LocalModels, settings: Settings) -> None:
    """Download the missing models of the settings, and report size, source and target folder.

    Meanwhile SIGINT and SIGTERM end the process at once, since there is no work to finish.

    Raises:
        ClickException: A model cannot be downloaded.
    """
    named = (*settings.models, *settings.draft_models)
    if not (missing := local.find_missing(named)):
        return

    from greenroom.schemas.logs import get_logger
    from greenroom.schemas.problems import ProblemError

    log = get_logger(actor="http")
    console = settings.log_format == "console"

    def tell(download: Download) -> None:
        if console:
            # Not by click, which writes past the bar, in the middle of its line.
            sys.stderr.write(f"{sentence(download)}\n")
        else:
            log.info("downloading", **_fields(download))

    with ended_by_signals():
        for model in missing:
            began = time.monotonic()
            try:
                with download_bar() if console and sys.stderr.isatty() else nullcontext(_ignore) as show:
                    local.fetch(model, settings, tell, show)
            except ProblemError as error:
                raise click.ClickException(error.problem.detail) from error
            log.info("downloaded", model=model, seconds=round(time.monotonic() - began, 1))


def sentence(download: Download) -> str:
    """Return a sentence about a download that is about to start."""
    files = "1 file" if download.files == 1 else f"{download.files} files"
    return (
        f"{download.model} is not on this machine: downloading {size_text(download.nbytes)} in {files} from "
        f"{download.source} to {without_home(download.folder)}"
    )


def _ignore(_: DownloadProgress) -> None:
    pass


def _fields(download: Download) -> dict[str, str | int]:
    return {
        "model": download.model,
        "files": download.files,
        "bytes": download.nbytes,
        "source": download.source,
        "folder": download.folder,
    }


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the process at once on SIGINT and SIGTERM within the block; what has arrived stays."""

    def end(number: int, _frame: FrameType | None) -> None:
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)
        os._exit(status_of_signal(number))

    usual = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
