"""A probe's progress and findings in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.standard_streams import try_print
from greenroom.schemas.events.events import Failed
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.models.probed_findings import findings_of
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel, ProbeProgress


async def print_findings(pool: Ref[PoolMessage], message: ProbeModel, *, as_json: bool) -> int:
    """Run a probe and print its findings; return the exit status.

    Args:
        as_json: See `findings_text`.

    Raises:
        ClickException: The model cannot be probed.
    """
    text = findings_text(findings_of(await _probe(pool, message)), as_json=as_json)
    printed = await trio.to_thread.run_sync(try_print, f"{text}\n", abandon_on_cancel=True)
    return ExitStatus.DONE if printed else ExitStatus.FAILED


def findings_text(found: Mapping[str, object], *, as_json: bool) -> str:
    """Return findings as text.

    Args:
        as_json: True for one JSON object, false for a line for each finding.
    """
    if as_json:
        return json.dumps(found, indent=2)
    return "\n".join(f"{name}: {_in_words(value)}" for name, value in found.items() if value is not None)


@contextmanager
def probe_progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, if that is a terminal; yield a function for the answered and all questions."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=None)

        def show(answered: int, questions: int) -> None:
            progress.update(task, description="asking", completed=answered, total=questions)

        yield show


async def _probe(pool: Ref[PoolMessage], message: ProbeModel) -> ProbedCapabilities:
    with probe_progress() as show:
        try:
            with await pool.stream(message) as replies:
                async for event in replies:
                    match event:
                        case ProbeProgress(answered, questions):
                            show(answered, questions)
                        case Failed(problem):
                            raise click.ClickException(problem.detail)
                        case Probed(record):
                            return record
        except ActorStopped:
            pass
    raise click.ClickException("the probe was interrupted")


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
