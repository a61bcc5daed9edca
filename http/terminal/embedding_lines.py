"""Vectors as lines of JSON, printed while further texts are read, with a bar that shows how far it is."""

from __future__ import annotations

import os
import re
import stat
import sys
import uuid
from collections.abc import Iterator, Sequence

import attrs
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.actors.core.ref import Ref
from greenroom.actors.generation import Generation
from greenroom.actors.system import open_system
from greenroom.http.answering.json_encoding import json_string
from greenroom.http.answering.vectors import in_order, vector_json
from greenroom.http.terminal.session import try_print
from greenroom.schemas.events import Failed
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.pool_protocol import PoolMessage
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.result_events import Vector
from greenroom.schemas.settings import Settings

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
    about = os.fstat(sys.stdin.fileno())
    return Lines(_read_lines(), about.st_size if stat.S_ISREG(about.st_mode) else None)


async def embed_lines(settings: Settings, asked: EmbeddingInput, lines: Lines, console: Console) -> int:
    """Print a line of JSON for each text; return the exit status.

    Args:
        asked: What the vectors shall be like; its texts are left out of account.
        console: Of the progress bar.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    done = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=lines.total)
        async with open_system(settings) as system:
            while group := await trio.to_thread.run_sync(_take_group, lines.lines, abandon_on_cancel=True):
                problem = await _embed_group(system.pool, asked, group)
                if problem is not None:
                    progress.stop()
                    sys.stderr.write(problem)
                    return 1
                done += len(group)
                progress.update(task, completed=group[-1].end, description=f"{done:,} texts")
    return 0


async def _embed_group(pool: Ref[PoolMessage], asked: EmbeddingInput, group: Sequence[Line]) -> str | None:
    """Print the vectors of some texts; return what there is to say if that was the end."""
    texts = tuple(line.text for line in group)
    request = InferenceRequest(uuid.uuid4().hex, ModelKey("default"), attrs.evolve(asked, texts=texts))
    vectors: list[Vector] = []
    with Generation(pool, request) as generation:
        async for event in generation:
            if isinstance(event, Failed):
                return f"greenroom: {_named(event.problem, group)}\n"
            if isinstance(event, Vector):
                vectors.append(event)
    printed = await trio.to_thread.run_sync(_print, in_order(vectors), group)
    return None if printed else ""


def _print(vectors: Sequence[Vector], group: Sequence[Line]) -> bool:
    """Print vectors; return whether stdout still has a reader."""
    for vector, line in zip(vectors, group, strict=True):
        text, numbers = json_string(line.text), vector_json(vector)
        entry = b'{"index":%d,"text":%b,"embedding":%b}\n' % (line.index, text, numbers)
        if not try_print(entry.decode()):
            return False
    return True


def _read_lines() -> Iterator[Line]:
    read = 0
    for index, data in enumerate(sys.stdin.buffer):
        read += len(data)
        text = data.decode("utf-8", "replace").rstrip("\r\n")
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
