"""Reranked documents as lines of JSON, most relevant first, with a progress bar."""

from __future__ import annotations

from typing import Any

import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.http.terminal.server_answers import given, open_answers
from greenroom.http.terminal.standard_streams import try_print
from greenroom.http.terminal.text_lines import Line, Lines, take_group


async def rank_lines(
    server: ChosenServer,
    query: str,
    instruction: str | None,
    lines: Lines,
    top: int | None,
    console: Console,
) -> int:
    """Print a line of JSON for each document, best first; return the exit status.

    Args:
        instruction: Criterion of relevance, for models that take instructions.
        top: Number of documents to print; None for all.
        console: Console for the progress bar.

    Raises:
        ClickException: A document cannot be read or ranked.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    ranked: list[tuple[Line, float]] = []
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with progress:
        task = progress.add_task("loading", total=lines.total)
        async with open_answers(server) as answers:
            while group := await trio.to_thread.run_sync(take_group, lines.lines, abandon_on_cancel=True):
                documents = [line.text for line in group]
                body = {"model": server.model, "query": query, "documents": documents}
                body |= given(instruction=instruction)
                scores = await answers.read("/v1/rerank", _scores, json=body)
                ranked += ((group[index], score) for index, score in scores)
                ranked = sorted(ranked, key=lambda entry: (-entry[1], entry[0].index))[:top]
                read = f"{group[-1].index + 1:,} documents"
                progress.update(task, completed=group[-1].end, description=read)
    printed = await trio.to_thread.run_sync(_print, ranked, abandon_on_cancel=True)
    return ExitStatus.DONE if printed else ExitStatus.FAILED


def _scores(document: Any) -> list[tuple[int, float]]:
    return [(int(entry["index"]), float(entry["relevance_score"])) for entry in document["results"]]


def _print(ranked: list[tuple[Line, float]]) -> bool:
    """Print documents; return whether stdout still has a reader."""
    for line, score in ranked:
        entry = {"index": line.index, "relevance_score": score, "text": line.text}
        if not try_print(f"{json_bytes(entry).decode()}\n"):
            return False
    return True
