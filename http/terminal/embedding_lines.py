"""Embeddings of lines of text as lines of JSON, with a progress bar."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.http.encoding.json_encoding import json_string
from greenroom.http.encoding.vectors import in_order, vector_json
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answers import Ask
from greenroom.http.terminal.standard_streams import try_print
from greenroom.http.terminal.text_lines import Line, Lines, results_of, take_group
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.requests import EmbeddingInput
from greenroom.schemas.problems import Problem, ProblemError

_PLACE = re.compile(r"`input(?:\[(\d+)\])?`")


async def embed_lines(ask: Ask, asked: EmbeddingInput, lines: Lines, console: Console) -> int:
    """Print a line of JSON for each text; return the exit status.

    Args:
        asked: Parameters of the embeddings; its texts are ignored.
        console: Console for the progress bar.

    Raises:
        ClickException: A text cannot be read or embedded.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    done = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=lines.total)
        while group := await trio.to_thread.run_sync(take_group, lines.lines, abandon_on_cancel=True):
            vectors = await _embed_group(ask, asked, group)
            if not await trio.to_thread.run_sync(_print, vectors, group, abandon_on_cancel=True):
                return ExitStatus.FAILED
            done += len(group)
            progress.update(task, completed=group[-1].end, description=f"{done:,} texts")
    return ExitStatus.DONE


async def _embed_group(ask: Ask, asked: EmbeddingInput, group: Sequence[Line]) -> Sequence[Vector]:
    """Return the vectors of some texts, in order."""
    texts = tuple(line.text for line in group)
    try:
        return in_order(await results_of(ask, attrs.evolve(asked, texts=texts), Vector))
    except ProblemError as error:
        raise click.ClickException(_named(error.problem, group)) from error


def _print(vectors: Sequence[Vector], group: Sequence[Line]) -> bool:
    """Print vectors; return whether stdout still has a reader."""
    for vector, line in zip(vectors, group, strict=True):
        text, numbers = json_string(line.text), vector_json(vector)
        entry = b'{"index":%d,"text":%b,"embedding":%b}\n' % (line.index, text, numbers)
        if not try_print(entry.decode()):
            return False
    return True


def _named(problem: Problem, group: Sequence[Line]) -> str:
    """Return a problem's description with the number of the text instead of its path in the request."""

    def name(place: re.Match[str]) -> str:
        return f"text {group[int(place[1] or 0)].index}"

    return _PLACE.sub(name, problem.detail)
