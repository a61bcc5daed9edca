"""Files that commands write: whole, or not at all."""

from __future__ import annotations

import os
import stat
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

STDOUT = Path("-")
"""Stands for standard output, as in other programs."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes its place when the block ends, and is gone if an exception ends it.

    Standard output is written to as it is, and so is a device or a pipe that stands in the file's place.

    Raises:
        ClickException: It cannot be written.
    """
    try:
        if path == STDOUT or (path.exists() and not path.is_file()):
            with _opened(path) as file:
                yield file
            return
        path = Path(os.path.realpath(path))
        part = path.with_name(f".greenroom-{uuid.uuid4().hex}.part")
        try:
            with part.open("x+b") as file:
                if path.exists():  # who may read it is not ours to say
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                yield file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        name = "standard output" if path == STDOUT else path
        raise click.ClickException(f"{name}: {error.strerror or error}") from error


def _opened(path: Path) -> BinaryIO:
    if path == STDOUT:
        if sys.stdout is None:
            raise OSError("it is closed")
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # A pipe that nobody reads refuses at once.
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")
