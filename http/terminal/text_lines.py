"""Texts from the command line or stdin, read lazily and processed in groups."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence

import attrs

from greenroom.http.terminal.standard_streams import read_lines

MAX_LINES = 1_024
"""Largest number of texts per request."""
MAX_CHARACTERS = 4_000_000
"""Characters at which a request takes no further texts."""


@attrs.frozen
class Line:
    """A text.

    Args:
        index: Position among all texts, from 0.
        end: Amount of input up to its end, in the unit of `Lines.total`.
    """

    text: str
    index: int
    end: int


@attrs.frozen
class Lines:
    """Texts that are read lazily.

    Args:
        total: Amount of input, in texts or bytes; None if unknown.
    """

    lines: Iterator[Line]
    total: int | None


def lines_of(texts: Sequence[str]) -> Lines:
    """Return the texts of the command line, or the lines of stdin if the only text is `-`."""
    return _lines_of_stdin() if tuple(texts) == ("-",) else _lines_of_arguments(texts)


def _lines_of_arguments(texts: Sequence[str]) -> Lines:
    return Lines((Line(text, at, at + 1) for at, text in enumerate(texts)), len(texts))


def _lines_of_stdin() -> Lines:
    """Return the nonblank lines of stdin, with their total size in bytes if stdin is a file."""
    about = None if sys.stdin is None else os.fstat(sys.stdin.fileno())
    is_file = about is not None and stat.S_ISREG(about.st_mode)
    return Lines(_lines_with_text(), about.st_size if about is not None and is_file else None)


def _lines_with_text() -> Iterator[Line]:
    read = 0
    for index, (text, size) in enumerate(read_lines()):
        read += size
        if text.strip():
            yield Line(text, index, read)


def take_group(lines: Iterator[Line]) -> list[Line]:
    """Return the texts of the next request; none at the end."""
    group: list[Line] = []
    characters = 0
    for line in lines:
        group.append(line)
        characters += len(line.text)
        if len(group) == MAX_LINES or characters >= MAX_CHARACTERS:
            break
    return group
