"""Reranked documents as lines of JSON, most relevant first, with a progress bar."""

from __future__ import annotations

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answers import Ask
from greenroom.http.terminal.standard_streams import try_print
from greenroom.http.terminal.text_lines import Line, Lines, results_of, take_group
from greenroom.schemas.events.result_events import Score
from greenroom.schemas.messages.requests import ScoreInput
from greenroom.schemas.problems import ProblemError


async def rank_lines(
    ask: Ask, query: str, asked: ScoreInput, lines: Lines, top: int | None, console: Console
) -> int:
    """Print a line of JSON for each document, best first; return the exit status.

    Args:
        asked: Parameters of the scoring; its pairs are ignored.
        top: Number of documents to print; None for all.
        console: Console for the progress bar.

    Raises:
        ClickException: A document cannot be read or ranked.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    ranked: list[tuple[Line, float]] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=lines.total)
        while group := await trio.to_thread.run_sync(take_group, lines.lines, abandon_on_cancel=True):
            pairs = tuple((query, line.text) for line in group)
            try:
                scores = await results_of(ask, attrs.evolve(asked, pairs=pairs), Score)
            except ProblemError as error:
                raise click.ClickException(error.problem.detail) from error
            ranked += ((group[score.index], score.value) for score in scores)
            ranked = sorted(ranked, key=lambda entry: (-entry[1], entry[0].index))[:top]
            progress.update(task, completed=group[-1].end, description=f"{group[-1].index + 1:,} documents")
    printed = await trio.to_thread.run_sync(_print, ranked, abandon_on_cancel=True)
    return ExitStatus.DONE if printed else ExitStatus.FAILED


def _print(ranked: list[tuple[Line, float]]) -> bool:
    """Print documents; return whether stdout still has a reader."""
    for line, score in ranked:
        entry = {"index": line.index, "relevance_score": score, "text": line.text}
        if not try_print(f"{json_bytes(entry).decode()}\n"):
            return False
    return True
