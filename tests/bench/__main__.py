"""Load tests of a server, compared with mlx-lm's bare loops: `make bench ARGS=MODEL`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from greenroom.tests.bench.bench_plan import SCENARIOS, BenchPlan, is_url, open_targets

if TYPE_CHECKING:
    from rich.console import Console

    from greenroom.tests.bench.report import Results

Command = Callable[..., None]


def _parse_counts(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter("must be whole numbers above 0, like 1,8,16")
    return numbers


def _parse_fields(_ctx: click.Context, _option: click.Parameter, text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as problem:
        raise click.BadParameter(f"is not JSON: {problem}") from None
    if not isinstance(fields, dict):
        raise click.BadParameter("must be a JSON object")
    return fields


def _check_url(_ctx: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not is_url(text):
        raise click.BadParameter("must be an address like http://127.0.0.1:8000")
    return text


def _count(name: str, default: int, meaning: str) -> Callable[[Command], Command]:
    return click.option(name, default=default, show_default=True, type=click.IntRange(1), help=meaning)


@click.command()
@click.argument("target", metavar="URL|MODEL")
@click.option("--model", help="Model to ask for at URL (default: the first that the server lists).")
@click.option(
    "--against", callback=_check_url, metavar="URL", help="Another server, measured in turns with the first."
)
@click.option(
    "--scenario",
    multiple=True,
    default=("streams",),
    show_default=True,
    type=click.Choice((*SCENARIOS, "all")),
    help="What to measure; may be given several times.",
)
@click.option(
    "--concurrency",
    default="1,8,16",
    show_default=True,
    callback=_parse_counts,
    help="streams: numbers of streams at once.",
)
@_count("--requests", 16, "mixed: requests at once.")
@_count("--beside", 8, "long-prompt: streams that run when it arrives.")
@_count("--long-tokens", 3600, "long-prompt: length of the long prompt, in tokens.")
@_count("--tokens", 64, "streams, mixed: longest answer, in tokens.")
@_count("--prompt-words", 32, "Length of all other prompts, in random words.")
@_count("--repeats", 7, "Runs that count, after those that warm up.")
@click.option("--seed", type=int, help="Repeat the prompts of an earlier run (default: new ones).")
@click.option(
    "--extra", default="{}", callback=_parse_fields, metavar="JSON", help="Fields to add to every request."
)
@click.option("--bare/--no-bare", default=True, help="With MODEL: also run mlx-lm's bare loops.")
@click.option("--serve", "serve", multiple=True, metavar="OPTION", help="With MODEL: option for `serve`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(as_json: bool, **plan: Any) -> None:
    """Measure a server, or a model against mlx-lm's bare loop.

    URL is any OpenAI-compatible server. MODEL is a local folder or a hub id: bench starts a server for it,
    and after each run mlx-lm's own loops do the same work on the same prompts. The ratios show how much of
    the machine's speed is left through the server.

    \b
    Scenarios:
      streams      several streams that start together, or one alone
      mixed        requests with different parameters, compared with greedy ones; each
                   must get the same answer as alone
      long-prompt  a long prompt that arrives among running streams
      all          these three

    \b
    Examples:
      make bench ARGS=http://127.0.0.1:8000
      make bench ARGS="~/models/Qwen3-4B-4bit --scenario all"
      make bench ARGS="http://127.0.0.1:8000 --against http://127.0.0.1:8080 --scenario long-prompt"
      make bench ARGS="~/models/Qwen3-4B-4bit --concurrency 1,32 --json" > figures.json
    """
    from rich.console import Console

    from greenroom.http.process.command_run import run_command
    from greenroom.http.process.exit_status import ExitStatus
    from greenroom.http.process.log_configuration import configure_logging
    from greenroom.tests.bench.load_client import BenchError

    configure_logging("console", "error")
    chosen = BenchPlan(**plan)

    async def bench() -> int:
        found: BaseException | None = None
        try:
            model, results = await _measure(chosen, Console(stderr=True))
            _print_report(results, model, as_json)
        except* BenchError as problems:
            found = problems
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            raise click.ClickException(str(found))
        failed = any(result.errors for row in results for result in row)
        return ExitStatus.FAILED if failed else ExitStatus.DONE

    run_command(bench)


async def _measure(plan: BenchPlan, console: Console) -> tuple[str, Results]:
    from greenroom.tests.bench.measurement import Measurement
    from greenroom.tests.bench.prompts import Prompts

    with console.status("starting") as status:
        async with AsyncExitStack() as stack:
            targets = await open_targets(plan, stack)
            measurement = Measurement(targets, Prompts(plan.seed), plan.repeats, status.update)
            results = [await measurement.measure(scenario) for scenario in plan.scenarios()]
            return targets[0].client.endpoint.model, results


def _print_report(results: Results, model: str, as_json: bool) -> None:
    from rich.console import Console

    from greenroom.tests.bench import report

    if as_json:
        click.echo(json.dumps(report.as_json(results, model), indent=2))
    else:
        report.print_tables(results, model, Console())


def main() -> None:
    """Run the command, and print errors of its user in one line."""
    from greenroom.http.process.error_line import print_problem

    try:
        sys.exit(command.main(prog_name="bench", standalone_mode=False))
    except click.ClickException as problem:
        print_problem(problem)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
