"""Vectors as lines of JSON, printed while further texts are read, with a bar that shows how far it is."""

from __future__ import annotations

import os
import re
import stat
import sys
import uuid
from collections.abc import Iterator, Sequence

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.actors.core.ref import Ref
from greenroom.actors.generation import Generation
from greenroom.http.answering.encoding.json_encoding import json_string
from greenroom.http.answering.encoding.vectors import in_order, vector_json
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.standard_streams import read_lines, try_print
from greenroom.schemas.events import Failed
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.pool_protocol import PoolMessage
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.result_events import Vector

MAX_LINES = 1_024
"""Texts that are embedded together."""
MAX_CHARACTERS = 4_000_000
"""Of texts that are embedded together, unless one alone has more."""

_PLACE = re.compile(r"`input(?:\[(\d+)\])?`")


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


def lines_of_arguments(texts: Sequence[str]) -> Lines:
    """Return texts of the command line."""
    return Lines((Line(text, at, at + 1) for at, text in enumerate(texts)), len(texts))


def lines_of_stdin() -> Lines:
    """Return the lines of stdin that hold something, and how many bytes there are if it is a file."""
    about = None if sys.stdin is None else os.fstat(sys.stdin.fileno())
    is_file = about is not None and stat.S_ISREG(about.st_mode)
    return Lines(_lines_with_text(), about.st_size if about is not None and is_file else None)


async def embed_lines(pool: Ref[PoolMessage], asked: EmbeddingInput, lines: Lines, console: Console) -> int:
    """Print a line of JSON for each text; return the exit status.

    Args:
        asked: What the vectors shall be like; its texts are left out of account.
        console: Of the progress bar.

    Raises:
        ClickException: A text cannot be read or embedded.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    done = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=lines.total)
        while group := await trio.to_thread.run_sync(_take_group, lines.lines, abandon_on_cancel=True):
            vectors = await _embed_group(pool, asked, group)
            if not await trio.to_thread.run_sync(_print, vectors, group, abandon_on_cancel=True):
                return ExitStatus.FAILED
            done += len(group)
            progress.update(task, completed=group[-1].end, description=f"{done:,} texts")
    return ExitStatus.DONE


async def _embed_group(
    pool: Ref[PoolMessage], asked: EmbeddingInput, group: Sequence[Line]
) -> Sequence[Vector]:
    """Return the vectors of some texts, in order."""
    texts = tuple(line.text for line in group)
    request = InferenceRequest(uuid.uuid4().hex, ModelKey("default"), attrs.evolve(asked, texts=texts))
    vectors: list[Vector] = []
    with Generation(pool, request) as generation:
        async for event in generation:
            if isinstance(event, Failed):
                raise click.ClickException(_named(event.problem, group))
            if isinstance(event, Vector):
                vectors.append(event)
    return in_order(vectors)


def _print(vectors: Sequence[Vector], group: Sequence[Line]) -> bool:
    """Print vectors; return whether stdout still has a reader."""
    for vector, line in zip(vectors, group, strict=True):
        text, numbers = json_string(line.text), vector_json(vector)
        entry = b'{"index":%d,"text":%b,"embedding":%b}\n' % (line.index, text, numbers)
        if not try_print(entry.decode()):
            return False
    return True


def _lines_with_text() -> Iterator[Line]:
    read = 0
    for index, (text, size) in enumerate(read_lines()):
        read += size
        if text.strip():
            yield Line(text, index, read)


def _take_group(lines: Iterator[Line]) -> list[Line]:
    """Return as many of the next texts as are embedded together; none at the end."""
    group: list[Line] = []
    characters = 0
    for line in lines:
        group.append(line)
        characters += len(line.text)
        if len(group) == MAX_LINES or characters >= MAX_CHARACTERS:
            break
    return group


def _named(problem: Problem, group: Sequence[Line]) -> str:
    """Return what is wrong, with the number of the text in place of its place in the request."""

    def name(place: re.Match[str]) -> str:
        return f"text {group[int(place[1] or 0)].index}"

    return _PLACE.sub(name, problem.detail)
