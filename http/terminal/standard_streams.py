"""What is read from standard input and written to standard output, by commands in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Of a text, or of a line where each is a text: more than any model reads, and little enough to hold."""


def read_text() -> str:
    """Return the text on stdin.

    Raises:
        UsageError: There is none, too much of it, or it is no UTF-8.
    """
    if sys.stdin is None:
        raise click.UsageError("stdin is closed")
    try:
        data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"stdin: {error.strerror or error}") from error
    text = _decoded(data, "stdin").replace("\r\n", "\n")
    if not text.strip():
        raise click.UsageError("there is no text on stdin")
    return text


def read_lines() -> Iterator[tuple[str, int]]:
    """Yield the lines of stdin as they come, each with the bytes that it took.

    Raises:
        UsageError: A line is too long, or no UTF-8.
    """
    if sys.stdin is None:
        raise click.UsageError("stdin is closed")
    number = 0
    try:
        while data := sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1):
            number += 1
            yield _decoded(data, f"line {number} of stdin").rstrip("\r\n"), len(data)
    except OSError as error:
        raise click.UsageError(f"stdin: {error.strerror or error}") from error


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}


def for_terminal(text: str) -> str:
    """Return what a model wrote with control characters spelled out: a terminal would obey them.

    A document that the model reads may have it write what sets the clipboard or hides what stands above.
    """
    return text.translate(_CONTROLS)


def try_print(text: str) -> bool:
    """Print, to a terminal what it shows as it stands; return whether stdout still has a reader.

    Raises:
        ClickException: It is closed, or its disk is full.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed")
    if sys.stdout.isatty():
        text = for_terminal(text)
    try:
        try:
            print(text, end="", flush=True)
        except UnicodeEncodeError:  # a terminal of another encoding than UTF-8
            print(text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding), end="", flush=True)
    except OSError as error:
        drop_output()
        if isinstance(error, BrokenPipeError):
            return False
        raise click.ClickException(f"standard output: {error.strerror or error}") from error
    return True


def drop_output() -> None:
    """Let what is still to be written to standard output vanish: Python would complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _decoded(data: bytes, place: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise click.UsageError(f"{place} has more than {MAX_TEXT_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{place} is no UTF-8 from byte {error.start} on") from error
