"""A probe's progress and findings in the terminal."""

from __future__ import annotations

import json

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


async def print_findings(
    pool: Ref[PoolMessage], message: ProbeModel, console: Console, *, as_json: bool
) -> int:
    """Run a probe and print its findings; return the exit status.

    Args:
        console: Console for the progress bar.
        as_json: True for one JSON object, false for a line for each finding.

    Raises:
        ClickException: The model cannot be probed.
    """
    found = findings_of(await _probe(pool, message, console))
    if as_json:
        text = json.dumps(found, indent=2)
    else:
        text = "\n".join(f"{name}: {_in_words(value)}" for name, value in found.items() if value is not None)
    printed = await trio.to_thread.run_sync(try_print, f"{text}\n", abandon_on_cancel=True)
    return ExitStatus.DONE if printed else ExitStatus.FAILED


async def _probe(pool: Ref[PoolMessage], message: ProbeModel, console: Console) -> ProbedCapabilities:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=None)
        try:
            with await pool.stream(message) as replies:
                async for event in replies:
                    match event:
                        case ProbeProgress(answered, questions):
                            progress.update(task, description="asking", completed=answered, total=questions)
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
