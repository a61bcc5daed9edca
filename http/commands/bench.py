"""`greenroom bench`: how fast a server answers, and how near it comes to the bare loop."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import attrs
import click

if TYPE_CHECKING:
    from rich.console import Console

    from greenroom.http.bench.figures import Figures
    from greenroom.http.bench.load_client import Target


@attrs.frozen
class Plan:
    """What the user asked for."""

    target: str
    model: str | None
    concurrency: tuple[int, ...]
    tokens: int
    prompt_words: int
    repeats: int
    seed: int | None
    extra: dict[str, Any]
    bare: bool
    serve: tuple[str, ...]

    @property
    def is_url(self) -> bool:
        return self.target.startswith(("http://", "https://"))


def _numbers(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter("must be whole numbers above 0, like 1,8,16")
    return numbers


def _object(_ctx: click.Context, _option: click.Parameter, text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as problem:
        raise click.BadParameter(f"is not JSON: {problem}") from None
    if not isinstance(fields, dict):
        raise click.BadParameter("must be a JSON object")
    return fields


@click.command()
@click.argument("target", metavar="URL|MODEL")
@click.option("--model", help="Model to ask for at URL (default: the first that the server lists).")
@click.option(
    "--concurrency",
    default="1,8,16",
    show_default=True,
    callback=_numbers,
    help="Numbers of streams at once.",
)
@click.option("--tokens", default=64, show_default=True, type=click.IntRange(1), help="Longest answer.")
@click.option(
    "--prompt-words",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    help="Length of prompts, in random words.",
)
@click.option(
    "--repeats", default=7, show_default=True, type=click.IntRange(1), help="Runs that count; two warm up."
)
@click.option("--seed", type=int, help="Repeat the prompts of an earlier run (default: new ones).")
@click.option(
    "--extra", default="{}", callback=_object, metavar="JSON", help="Fields to add to every request."
)
@click.option("--bare/--no-bare", default=True, help="With MODEL: also run mlx-lm's bare loops.")
@click.option("--serve", "serve", multiple=True, metavar="OPTION", help="With MODEL: option for `serve`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(as_json: bool, **plan: Any) -> None:
    """Measure a server, or a model against mlx-lm's bare loop.

    URL is any OpenAI-compatible server. With MODEL, a local folder or a hub id, a server is started for it,
    and after each run mlx-lm's own BatchGenerator and the bare forward-and-argmax loop do the same work on
    the same prompts; the ratios say how much of the machine the server leaves to the model.

    \b
    Examples:
      greenroom bench http://127.0.0.1:8000
      greenroom bench ~/models/Qwen3-4B-4bit --concurrency 1,8,16 --tokens 64 --repeats 7
      greenroom bench http://127.0.0.1:8080 --json > figures.json
    """
    import trio
    from rich.console import Console

    from greenroom.http.bench.load_client import BenchError
    from greenroom.http.log_configuration import configure_logging

    configure_logging("console", "error")
    chosen = Plan(**plan)
    console = Console(stderr=True)
    try:
        target, results = trio.run(_measure, chosen, console)
    except* BenchError as problems:
        problem: BaseException = problems
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        raise click.ClickException(str(problem)) from None
    _report(chosen, target, results, as_json)
    sys.exit(1 if any(result.errors for result in results) else 0)


async def _measure(plan: Plan, console: Console) -> tuple[Target, list[Figures]]:
    from greenroom.http.bench.load_client import LoadClient, find_target
    from greenroom.http.bench.local_processes import open_bare_loops, open_local_server
    from greenroom.http.bench.measurement import Measurement
    from greenroom.http.bench.prompts import Prompts
    from greenroom.http.bench.recorder import open_recorder
    from greenroom.http.bench.scenarios import ConcurrentStreams

    with console.status("starting") as status:
        async with AsyncExitStack() as stack:
            address, pid, loops = plan.target, None, None
            if not plan.is_url:
                server = await stack.enter_async_context(open_local_server(plan.target, plan.serve))
                address, pid = server.address, server.pid
                if plan.bare:
                    loops = await stack.enter_async_context(open_bare_loops(plan.target))
            key = os.environ.get("OPENAI_API_KEY", "none")
            target = await find_target(address, plan.model, key, plan.extra)
            recorder = await stack.enter_async_context(open_recorder())
            measurement = Measurement(
                LoadClient(target, recorder), Prompts(plan.seed), plan.repeats, pid, loops, status.update
            )
            scenarios = [
                ConcurrentStreams(streams, plan.tokens, plan.prompt_words) for streams in plan.concurrency
            ]
            return target, await measurement.measure(scenarios)


def _report(plan: Plan, target: Target, results: list[Figures], as_json: bool) -> None:
    from rich.console import Console

    from greenroom.http.bench import report

    if as_json:
        click.echo(json.dumps(report.as_json(results, target.base, target.model), indent=2))
    else:
        report.print_table(results, target.base, target.model, Console())
