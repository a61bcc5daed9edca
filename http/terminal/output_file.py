"""Atomic writes of output files."""

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
"""Path that stands for standard output, as in other programs."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends, and is deleted if an exception ends it.

    Standard output, devices and pipes are written directly.

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
                if path.exists():  # keep the permissions of a file that is replaced
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
    # Without O_NONBLOCK, opening a pipe without a reader would block.
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")
