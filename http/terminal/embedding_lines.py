"""Embeddings of lines of text as lines of JSON, with a progress bar."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.http.encoding.json_encoding import json_string
from greenroom.http.encoding.vectors import in_order, vector_json
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.http.terminal.server_answers import ServerAnswers, given, open_answers
from greenroom.http.terminal.standard_streams import try_print
from greenroom.http.terminal.text_lines import Line, Lines, take_group
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.requests import EmbeddingInput

_PLACE = re.compile(r"`input(?:\[(\d+)\])?`")


async def embed_lines(server: ChosenServer, asked: EmbeddingInput, lines: Lines, console: Console) -> int:
    """Print a line of JSON for each text; return the exit status.

    Args:
        asked: Parameters of the embeddings; its texts are ignored.
        console: Console for the progress bar.

    Raises:
        ClickException: A text cannot be read or embedded.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    done = 0
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with progress:
        task = progress.add_task("loading", total=lines.total)
        async with open_answers(server) as answers:
            while group := await trio.to_thread.run_sync(take_group, lines.lines, abandon_on_cancel=True):
                vectors = await _embed_group(answers, asked, group)
                if not await trio.to_thread.run_sync(_print, vectors, group, abandon_on_cancel=True):
                    return ExitStatus.FAILED
                done += len(group)
                progress.update(task, completed=group[-1].end, description=f"{done:,} texts")
    return ExitStatus.DONE


async def _embed_group(
    answers: ServerAnswers, asked: EmbeddingInput, group: Sequence[Line]
) -> Sequence[Vector]:
    """Return the vectors of some texts, in order."""
    body = {
        "model": answers.server.model,
        "input": [line.text for line in group],
        "encoding_format": "base64",
        **({"truncate": True} if asked.truncate else {}),
        **given(dimensions=asked.dimensions, input_type=asked.input_type, instruction=asked.instruction),
    }
    try:
        return in_order(await answers.read("/v1/embeddings", _vectors, json=body))
    except click.ClickException as error:
        raise click.ClickException(_named(error.message, group)) from error


def _vectors(document: Any) -> list[Vector]:
    return [Vector(base64.b64decode(entry["embedding"]), int(entry["index"])) for entry in document["data"]]


def _print(vectors: Sequence[Vector], group: Sequence[Line]) -> bool:
    """Print vectors; return whether stdout still has a reader."""
    for vector, line in zip(vectors, group, strict=True):
        text, numbers = json_string(line.text), vector_json(vector)
        entry = b'{"index":%d,"text":%b,"embedding":%b}\n' % (line.index, text, numbers)
        if not try_print(entry.decode()):
            return False
    return True


def _named(detail: str, group: Sequence[Line]) -> str:
    """Return an error with the number of the text instead of its path in the request."""

    def name(place: re.Match[str]) -> str:
        return f"text {group[int(place[1] or 0)].index}"

    return _PLACE.sub(name, detail)
