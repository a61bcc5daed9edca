"""The figures of a model that other servers publish, as one table in Markdown.

python -m greenroom.tests.on_device.published_rows MODEL --short
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
import click
import trio

from greenroom.tests.bench.load_client import Answer, BenchError, ChatMessages, Prompts
from greenroom.tests.bench.servers import Request, TargetOptions, TargetServer, open_targets

PROMPTS = {"2k": 2048, "4k": 4096, "64k": 65536}
STREAMS = (1, 4, 8, 32)
_GREEDY = {"temperature": 0, "ignore_eos": True}
_SHORT_PROMPT = 32
"""Words of the prompts of streams."""
_REPEATED = 120
"""Words that a model is asked to say again, where drafts pay."""


@attrs.frozen
class Plan:
    """The lengths of a measurement.

    Args:
        repeats: Runs of each row, of which the median counts.
        tokens: Tokens of each stream's answer.
        draft_model: Model that drafts; None to look drafts up in the text.
    """

    repeats: int = 3
    tokens: int = 256
    draft_model: str | None = None


class Table:
    """Measures rows on a running server, and prints each as soon as it is there."""

    def __init__(self, target: TargetServer, plan: Plan) -> None:
        self._target = target
        self._plan = plan
        self._prompts = Prompts()

    async def row(self, name: str, unit: str, measure: Callable[[], Awaitable[float]]) -> None:
        """Print the median of several runs; or why there is none."""
        runs: list[float] = []
        try:
            for _ in range(self._plan.repeats):
                runs.append(await measure())
        except* BenchError as problems:
            cause: BaseException = problems
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            click.echo(f"| {name} | none | {cause} |")
            runs = []
        if not runs:
            return
        spread = f"{min(runs):.3g} to {max(runs):.3g}" if len(runs) > 1 else "1 run"
        click.echo(f"| {name} | {statistics.median(runs):.3g} {unit} | {spread} |")

    async def first_token(self, tokens: int) -> float:
        """Return the seconds to the first token of a new prompt."""
        return (await self._ask(await self._prompt(tokens))).time_to_first_token

    async def prefill(self, tokens: int) -> float:
        """Return the tokens of a new prompt that are computed in a second."""
        answer = await self._ask(await self._prompt(tokens))
        return answer.prompt_tokens / answer.time_to_first_token

    async def repeated(self, tokens: int) -> float:
        """Return the seconds to the first token of a question to a prompt that was computed before."""
        prompt = await self._prompt(tokens)
        await self._ask(prompt)
        again = [*prompt, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
        return (await self._ask(again)).time_to_first_token

    async def decode(self, streams: int) -> float:
        """Return the tokens of all streams together in a second, after the first one came."""
        fields = await self._target.accepted_fields(_GREEDY)
        requests = [
            Request(self._prompts.chat(_SHORT_PROMPT), self._plan.tokens, fields) for _ in range(streams)
        ]
        exchanges = await self._target.ask_together(requests)
        return _rate([_checked(exchange.answer) for exchange in exchanges])

    async def repeat_text(self) -> float:
        """Return the tokens in a second of a stream that says a text again."""
        text = f"Say this again, word for word: {self._prompts.text(_REPEATED)}"
        fields = await self._target.accepted_fields(_GREEDY)
        answer = (
            await self._target.ask([{"role": "user", "content": text}], self._plan.tokens, **fields)
        ).answer
        return _rate([_checked(answer)])

    async def _prompt(self, tokens: int) -> ChatMessages:
        return self._prompts.chat(await self._target.words_for_tokens(tokens))

    async def _ask(self, messages: ChatMessages) -> Answer:
        # More than one token, and no end: a first one that ends the answer, or half a character, has no text.
        fields = await self._target.accepted_fields(_GREEDY)
        return _checked((await self._target.ask(messages, 4, **fields)).answer)


def _checked(answer: Answer) -> Answer:
    """Return a whole answer.

    Raises:
        BenchError: There is none; the message says why.
    """
    if answer.refused and "context" in (answer.error or ""):
        raise BenchError("longer than the model's context")
    if answer.error is not None or not answer.arrivals:
        raise BenchError(answer.error or "no token came")
    return answer


def _rate(answers: Sequence[Answer]) -> float:
    seconds = max(each.arrivals[-1] for each in answers) - min(each.arrivals[0] for each in answers)
    return sum(each.tokens for each in answers) / max(seconds, 1e-3)


async def measure(model: str, plan: Plan) -> None:
    """Print all rows of a model."""
    click.echo("| what | figure | runs |\n|---|---|---|")
    async with opened(model, plan) as table:
        await table.row("first token, prompt of 2k", "s", partial(table.first_token, PROMPTS["2k"]))
        for size in ("4k", "64k"):
            await table.row(f"prefill, prompt of {size}", "tokens/s", partial(table.prefill, PROMPTS[size]))
        for streams in STREAMS:
            title = f"decode, {streams} stream{'s' * (streams > 1)}"
            await table.row(title, "tokens/s", partial(table.decode, streams))
        await table.row("first token, prefix of 2k again", "s", partial(table.repeated, PROMPTS["2k"]))
        await table.row("decode of a repeated text, without drafts", "tokens/s", table.repeat_text)
    options = ["--speculation", "lookup"]
    if plan.draft_model:
        options = ["--speculation", "draft", "--draft-model", plan.draft_model]
    async with opened(model, plan, options) as table:
        title = f"decode of a repeated text, with drafts ({plan.draft_model or 'lookup'})"
        await table.row(title, "tokens/s", table.repeat_text)


@asynccontextmanager
async def opened(model: str, plan: Plan, options: Sequence[str] = ()) -> AsyncIterator[Table]:
    """Open a server of a model, which has answered once: it is loaded, and its kernels are compiled."""
    async with AsyncExitStack() as stack:
        [target] = await open_targets(TargetOptions(target=model, bare=False, serve=tuple(options)), stack)
        table = Table(target, plan)
        await table.decode(1)
        yield table


@click.command()
@click.argument("model")
@click.option("--short", is_flag=True, help="One run of each row, and short answers.")
@click.option("--draft-model", help="Folder or hub id of a model that drafts.")
def main(model: str, short: bool, draft_model: str | None) -> None:
    """Print a table of the figures that other servers publish."""
    plan = attrs.evolve(Plan(1, 24) if short else Plan(), draft_model=draft_model)
    trio.run(measure, model, plan)


if __name__ == "__main__":
    main()
