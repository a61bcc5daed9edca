"""Download of missing hub models before a command starts."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.process.exit_status import status_of_signal
from greenroom.schemas.download import Download
from greenroom.schemas.settings.settings import Settings


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
            click.echo(sentence(download), err=True)
        else:
            log.info("downloading", **_fields(download))

    with _ended_by_signals():
        for model in missing:
            began = time.monotonic()
            try:
                local.fetch(model, settings, tell, progress=console and sys.stderr.isatty())
            except ProblemError as error:
                raise click.ClickException(error.problem.detail) from error
            log.info("downloaded", model=model, seconds=round(time.monotonic() - began, 1))


def sentence(download: Download) -> str:
    """Return a sentence about a download that is about to start."""
    size, unit = (download.nbytes / 1e9, "GB") if download.nbytes >= 1e8 else (download.nbytes / 1e6, "MB")
    folder = download.folder.replace(str(Path.home()), "~", 1)
    files = "1 file" if download.files == 1 else f"{download.files} files"
    return (
        f"{download.model} is not on this machine: downloading {size:.1f} {unit} in {files} from "
        f"{download.source} to {folder}"
    )


def _fields(download: Download) -> dict[str, str | int]:
    return {
        "model": download.model,
        "files": download.files,
        "bytes": download.nbytes,
        "source": download.source,
        "folder": download.folder,
    }


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(status_of_signal(number))

    usual = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
