"""`greenroom bench`: how fast a server answers, and how near it comes to the bare loop."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

if TYPE_CHECKING:
    from rich.console import Console

    from greenroom.http.bench.report import Results
    from greenroom.http.bench.scenario import Scenario
    from greenroom.http.bench.target_server import TargetServer

Command = Callable[..., None]
SCENARIOS = ("streams", "mixed", "long-prompt", "shared-prompt", "conversation")


@attrs.frozen
class Plan:
    """What the user asked to measure."""

    target: str
    model: str | None
    against: str | None
    scenario: tuple[str, ...]
    concurrency: tuple[int, ...]
    requests: int
    beside: int
    long_tokens: int
    turns: int
    tokens: int
    prompt_words: int
    repeats: int
    seed: int | None
    extra: dict[str, Any]
    bare: bool
    serve: tuple[str, ...]

    @property
    def is_url(self) -> bool:
        return _is_url(self.target)

    def scenarios(self) -> list[Scenario]:
        """Return the scenarios in the order in which they were named."""
        from greenroom.http.bench.scenarios.conversation import Conversation
        from greenroom.http.bench.scenarios.long_prompt import LongPrompt
        from greenroom.http.bench.scenarios.mixed import Mixed
        from greenroom.http.bench.scenarios.shared_prompt import SharedPrompt
        from greenroom.http.bench.scenarios.streams import Streams

        tokens, words = self.tokens, self.prompt_words
        known: dict[str, list[Scenario]] = {
            "streams": [Streams(streams, tokens, words) for streams in self.concurrency],
            "mixed": [Mixed(self.requests, tokens, words)],
            "long-prompt": [LongPrompt(self.beside, self.long_tokens, stream_words=words)],
            "shared-prompt": [SharedPrompt(self.long_tokens)],
            "conversation": [Conversation(self.turns, tokens, words)],
        }
        names = SCENARIOS if "all" in self.scenario else dict.fromkeys(self.scenario)
        return [scenario for name in names for scenario in known[name]]


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


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


def _url(_ctx: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _is_url(text):
        raise click.BadParameter("must be an address like http://127.0.0.1:8000")
    return text


def _picture(_ctx: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
    """Refuse a picture that could not be drawn before anything is measured."""
    from greenroom.http.bench import plot

    if file is None:
        return None
    if not plot.is_drawable():
        raise click.BadParameter("needs matplotlib: pip install 'greenroom[plot]'")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise click.BadParameter(f"{file} cannot be written")
    return file


def _count(name: str, default: int, meaning: str) -> Callable[[Command], Command]:
    return click.option(name, default=default, show_default=True, type=click.IntRange(1), help=meaning)


@click.command()
@click.argument("target", metavar="URL|MODEL")
@click.option("--model", help="Model to ask for at URL (default: the first that the server lists).")
@click.option(
    "--against", callback=_url, metavar="URL", help="Another server, measured in turns with the first."
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
    callback=_numbers,
    help="streams: numbers of streams at once.",
)
@_count("--requests", 16, "mixed: requests at once.")
@_count("--beside", 8, "long-prompt: streams that run when the long prompt arrives.")
@_count("--long-tokens", 3600, "long-prompt, shared-prompt: length of the long prompt, in tokens.")
@_count("--turns", 10, "conversation: turns after the opening one.")
@_count("--tokens", 64, "streams, mixed, conversation: longest answer.")
@_count("--prompt-words", 32, "Length of all other prompts, in random words.")
@_count("--repeats", 7, "Runs that count, after those that warm up.")
@click.option("--seed", type=int, help="Repeat the prompts of an earlier run (default: new ones).")
@click.option(
    "--extra", default="{}", callback=_object, metavar="JSON", help="Fields to add to every request."
)
@click.option("--bare/--no-bare", default=True, help="With MODEL: also run mlx-lm's bare loops.")
@click.option("--serve", "serve", multiple=True, metavar="OPTION", help="With MODEL: option for `serve`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_picture,
    metavar="FILE.png",
    help="Draw the results, a panel for each scenario.",
)
def command(as_json: bool, picture: Path | None, **plan: Any) -> None:
    """Measure a server, or a model against mlx-lm's bare loop.

    URL is any OpenAI-compatible server. With MODEL, a local folder or a hub id, a server is started for it,
    and after each run mlx-lm's own loops do the same work on the same prompts, where there is one that does;
    the ratios say how much of the machine the server leaves to the model.

    \b
    Scenarios:
      streams        several streams that begin together, or one alone
      mixed          requests with parameters of their own, over greedy ones; each has to
                     equal what it gets alone
      long-prompt    a long prompt that arrives among running streams
      shared-prompt  a long system prompt, new and repeated
      conversation   a conversation that grows turn by turn

    \b
    Examples:
      greenroom bench http://127.0.0.1:8000
      greenroom bench ~/models/Qwen3-4B-4bit --scenario all --plot figures.png
      greenroom bench http://127.0.0.1:8000 --against http://127.0.0.1:8080 --scenario long-prompt
      greenroom bench ~/models/Qwen3-4B-4bit --concurrency 1,32 --json > figures.json
    """
    import trio
    from rich.console import Console

    from greenroom.http.bench.load_client import BenchError
    from greenroom.http.process.log_configuration import configure_logging

    configure_logging("console", "error")
    chosen = Plan(**plan)
    try:
        model, results = trio.run(_measure, chosen, Console(stderr=True))
        _print_report(results, model, as_json, picture)
    except* BenchError as problems:
        problem: BaseException = problems
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        raise click.ClickException(str(problem)) from None
    sys.exit(1 if any(result.errors for row in results for result in row) else 0)


async def _measure(plan: Plan, console: Console) -> tuple[str, Results]:
    from greenroom.http.bench.measurement import Measurement
    from greenroom.http.bench.prompts import Prompts

    with console.status("starting") as status:
        async with AsyncExitStack() as stack:
            targets = await _open_targets(plan, stack)
            measurement = Measurement(targets, Prompts(plan.seed), plan.repeats, status.update)
            results = [await measurement.measure(scenario) for scenario in plan.scenarios()]
            return targets[0].client.endpoint.model, results


async def _open_targets(plan: Plan, stack: AsyncExitStack) -> list[TargetServer]:
    from greenroom.http.bench.load_client import LoadClient, find_endpoint
    from greenroom.http.bench.local_processes import open_bare_loops, open_local_server
    from greenroom.http.bench.response_recorder import open_response_recorder
    from greenroom.http.bench.target_server import TargetServer

    address, pid, loops = plan.target, None, None
    if not plan.is_url:
        server = await stack.enter_async_context(open_local_server(plan.target, plan.serve))
        address, pid = server.address, server.pid
        if plan.bare:
            loops = await stack.enter_async_context(open_bare_loops(plan.target))
    key = os.environ.get("OPENAI_API_KEY", "none")
    recorder = await stack.enter_async_context(open_response_recorder())
    target = await find_endpoint(address, plan.model, key, plan.extra)
    targets = [TargetServer(LoadClient(target, recorder), pid, loops)]
    if plan.against is not None:
        other = await find_endpoint(plan.against, None, key, plan.extra)
        targets.append(TargetServer(LoadClient(other, recorder)))
    return targets


def _print_report(results: Results, model: str, as_json: bool, picture: Path | None) -> None:
    from rich.console import Console

    from greenroom.http.bench import plot, report

    if as_json:
        click.echo(json.dumps(report.as_json(results, model), indent=2))
    else:
        report.print_tables(results, model, Console())
    if picture is not None:
        plot.draw([result for row in results for result in row], model, picture)
