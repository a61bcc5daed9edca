"""Texts of the command line or of stdin, read as they are needed and answered in groups."""

from __future__ import annotations

import os
import stat
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import TypeVar

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation
from greenroom.http.terminal.standard_streams import read_lines
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.requests import InferenceRequest, RequestInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import PoolMessage

E = TypeVar("E")

MAX_LINES = 1_024
"""Texts that are computed together."""
MAX_CHARACTERS = 4_000_000
"""Of texts that are computed together, unless one alone has more."""


@attrs.frozen
class Line:
    """A text.

    Args:
        index: Among all texts, from 0.
        end: How much of what is read ends with it, in the unit of the total.
    """

    text: str
    index: int
    end: int


@attrs.frozen
class Lines:
    """Texts, read as they are needed.

    Args:
        total: Where the last one ends; None if that is not known.
    """

    lines: Iterator[Line]
    total: int | None


def lines_of(texts: Sequence[str]) -> Lines:
    """Return texts of the command line, or with a `-` in their place the lines of stdin."""
    return _lines_of_stdin() if tuple(texts) == ("-",) else _lines_of_arguments(texts)


def _lines_of_arguments(texts: Sequence[str]) -> Lines:
    return Lines((Line(text, at, at + 1) for at, text in enumerate(texts)), len(texts))


def _lines_of_stdin() -> Lines:
    """Return the lines of stdin that hold something, and how many bytes there are if it is a file."""
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
    """Return as many of the next texts as are computed together; none at the end."""
    group: list[Line] = []
    characters = 0
    for line in lines:
        group.append(line)
        characters += len(line.text)
        if len(group) == MAX_LINES or characters >= MAX_CHARACTERS:
            break
    return group


async def results_of(pool: Ref[PoolMessage], asked: RequestInput, kind: type[E]) -> list[E]:
    """Return what the first model makes of a request, as it comes.

    Args:
        kind: Of event.

    Raises:
        ProblemError: The request is refused, or failed.
    """
    results: list[E] = []
    with Generation(pool, InferenceRequest(uuid.uuid4().hex, ModelKey("default"), asked)) as generation:
        async for event in generation:
            if isinstance(event, Failed):
                raise ProblemError(event.problem)
            if isinstance(event, kind):
                results.append(event)
    return results
