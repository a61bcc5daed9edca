"""Standard input and output of commands in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Limit on a text or line from stdin, in bytes: more than any model reads, but small enough for memory."""


def read_text() -> str:
    """Return the text on stdin.

    Raises:
        UsageError: It is empty, too long, or not UTF-8.
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
    """Yield the lines of stdin as they arrive, each with its size in bytes.

    Raises:
        UsageError: A line is too long, or not UTF-8.
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


_ALL_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_CONTROLS = {code: escaped for code, escaped in _ALL_CONTROLS.items() if chr(code) not in "\t\n\r"}


def for_terminal(text: str) -> str:
    """Return text from a model with control characters escaped, since a terminal would interpret them.

    A document in the prompt may make the model write sequences that set the clipboard or hide earlier output.
    """
    return text.translate(_CONTROLS)


def for_line(text: str) -> str:
    """Return text with line breaks and tabs escaped too: in a list, they would feign a line of the list."""
    return text.translate(_ALL_CONTROLS)


def try_print(text: str) -> bool:
    """Print text, escaped if stdout is a terminal; return whether stdout still has a reader.

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
        except UnicodeEncodeError:  # a terminal whose encoding is not UTF-8
            print(text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding), end="", flush=True)
    except OSError as error:
        drop_output()
        if isinstance(error, BrokenPipeError):
            return False
        raise click.ClickException(f"standard output: {error.strerror or error}") from error
    return True


def drop_output() -> None:
    """Redirect stdout to the null device, so that Python does not fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _decoded(data: bytes, place: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise click.UsageError(f"{place} has more than {MAX_TEXT_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{place} is not UTF-8 from byte {error.start} on") from error
