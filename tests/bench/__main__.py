"""Load tests of a server, or of a model beside mlx-lm's bare loops: `make bench ARGS=…`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import click
from rich.console import Console

from greenroom.http.process.command_run import run_command
from greenroom.http.process.exit_status import ExitStatus, print_problem
from greenroom.http.process.log_configuration import configure_logging
from greenroom.tests.bench import figures
from greenroom.tests.bench.load_client import BenchError, Prompts
from greenroom.tests.bench.long_prompt import LongPrompt
from greenroom.tests.bench.scenarios import Measurement, Mixed, Scenario, Streams
from greenroom.tests.bench.servers import TargetOptions, is_url, open_targets

SCENARIOS = ("streams", "mixed", "long-prompt")


def _parse_counts(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter("must be whole numbers above 0, like 1,8,16")
    return numbers


def _check_url(_ctx: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not is_url(text):
        raise click.BadParameter("must be an address like http://127.0.0.1:8000")
    return text


COUNT = click.IntRange(1)


@click.command(context_settings={"show_default": True})
@click.argument("target", metavar="URL|MODEL")
@click.option("--model", help="Model to ask for at URL (default: the first that the server lists).")
@click.option("--against", callback=_check_url, help="URL of another server, measured in turns.")
@click.option("--scenario", multiple=True, default=("streams",), type=click.Choice((*SCENARIOS, "all")))
@click.option("--concurrency", default="1,8,16", callback=_parse_counts, help="streams: streams at once.")
@click.option("--requests", default=16, type=COUNT, help="mixed: requests at once.")
@click.option("--beside", default=8, type=COUNT, help="long-prompt: streams that run when it arrives.")
@click.option("--long-tokens", default=3600, type=COUNT, help="long-prompt: its length, in tokens.")
@click.option("--tokens", default=64, type=COUNT, help="streams, mixed: longest answer, in tokens.")
@click.option("--prompt-words", default=32, type=COUNT, help="Length of other prompts, in random words.")
@click.option("--repeats", default=7, type=COUNT, help="Runs that count, after those that warm up.")
@click.option("--seed", type=int, help="Repeat the prompts of an earlier run (default: new ones).")
@click.option("--bare/--no-bare", default=True, help="With MODEL: also run mlx-lm's bare loops.")
@click.option("--serve", multiple=True, metavar="OPTION", help="With MODEL: option for `serve`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    target: str,
    model: str | None,
    against: str | None,
    scenario: Sequence[str],
    concurrency: Sequence[int],
    requests: int,
    beside: int,
    long_tokens: int,
    tokens: int,
    prompt_words: int,
    repeats: int,
    seed: int | None,
    bare: bool,
    serve: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure an OpenAI-compatible server at URL, or start one for MODEL (a folder or a hub id).

    For MODEL, mlx-lm's own loops do the same work on the same prompts after each run.

    \b
    Scenarios:
      streams      several streams that start together, or one alone
      mixed        requests with different parameters, compared with greedy ones; each
                   must get the same answer as alone
      long-prompt  a long prompt that arrives among running streams
      all          these three
    """
    configure_logging("console", "error")
    known: dict[str, list[Scenario]] = {
        "streams": [Streams(streams, tokens, prompt_words) for streams in concurrency],
        "mixed": [Mixed(requests, tokens, prompt_words)],
        "long-prompt": [LongPrompt(beside, long_tokens, stream_words=prompt_words)],
    }
    names = SCENARIOS if "all" in scenario else dict.fromkeys(scenario)
    options = TargetOptions(target=target, model=model, against=against, bare=bare, serve=serve)

    async def measure() -> tuple[str, figures.Results]:
        with Console(stderr=True).status("starting") as status:
            async with AsyncExitStack() as stack:
                targets = await open_targets(options, stack)
                measurement = Measurement(targets, Prompts(seed), repeats, status.update)
                results = [await measurement.measure(each) for name in names for each in known[name]]
                return targets[0].client.endpoint.model, results

    async def bench() -> int:
        found: BaseException | None = None
        try:
            measured, results = await measure()
        except* BenchError as problems:
            found = problems
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            raise click.ClickException(str(found))
        if as_json:
            click.echo(json.dumps(figures.as_json(results, measured), indent=2))
        else:
            figures.print_tables(results, measured, Console())
        failed = any(result.errors for row in results for result in row)
        return ExitStatus.FAILED if failed else ExitStatus.DONE

    run_command(bench)


def main() -> None:
    """Run the command, and print errors of its user in one line."""
    try:
        sys.exit(command.main(prog_name="bench", standalone_mode=False))
    except click.ClickException as problem:
        print_problem(problem)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
