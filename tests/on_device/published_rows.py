"""The figures of a model that other servers publish, as one table in Markdown.

python -m greenroom.tests.on_device.published_rows MODEL --short
"""

from __future__ import annotations

import math
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
import click
import trio

from greenroom.tests.bench.load_client import Answer, BenchError, ChatMessages, Prompts
from greenroom.tests.bench.servers import Request, TargetOptions, TargetServer, open_targets

FIRST_TOKEN, PREFILLS = 2048, (4096, 65536)
"""Tokens of prompts whose figures are published."""
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
        shortening: Divisor of the prompts' published lengths.
        seconds: Time limit of a row.
        draft_model: Model that drafts; None to look drafts up in the text.
    """

    repeats: int = 3
    tokens: int = 256
    shortening: int = 1
    seconds: float = math.inf
    draft_model: str | None = None

    def told(self) -> str:
        """Return a caveat for readers of the table; empty if its lengths are the published ones."""
        if self.shortening == 1:
            return ""
        return (
            f"Short form, to see that it all works: one run of each, prompts of 1/{self.shortening} of the "
            f"published length, {self.tokens} tokens a stream, at most {self.seconds:.0f} s a row.\n"
        )


SHORT = Plan(repeats=1, tokens=16, shortening=4, seconds=60)


class Table:
    """Measures rows on a running server, and prints each as soon as it is there."""

    def __init__(self, target: TargetServer, plan: Plan) -> None:
        self._target = target
        self._plan = plan
        self._prompts = Prompts()

    async def row(self, name: str, unit: str, measure: Callable[[], Awaitable[float]]) -> None:
        """Print the median of several runs; or why there is none."""
        runs: list[float] = []
        reason: object = f"longer than {self._plan.seconds:.0f} s"
        with trio.move_on_after(self._plan.seconds):
            try:
                for _ in range(self._plan.repeats):
                    runs.append(await measure())
            except* BenchError as problems:
                cause: BaseException = problems
                while isinstance(cause, BaseExceptionGroup):
                    cause = cause.exceptions[0]
                runs, reason = [], cause
        if not runs:
            click.echo(f"| {name} | none | {reason} |")
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


def _size(tokens: int) -> str:
    """Return a number of tokens as peers write it."""
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


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
    click.echo(f"{plan.told()}\n| what | figure | runs |\n|---|---|---|")
    first, *prefills = (tokens // plan.shortening for tokens in (FIRST_TOKEN, *PREFILLS))
    async with opened(model, plan) as table:
        await table.row(f"first token, prompt of {_size(first)}", "s", partial(table.first_token, first))
        for tokens in prefills:
            title = f"prefill, prompt of {_size(tokens)}"
            await table.row(title, "tokens/s", partial(table.prefill, tokens))
        for streams in STREAMS:
            title = f"decode, {streams} stream{'s' * (streams > 1)}"
            await table.row(title, "tokens/s", partial(table.decode, streams))
        title = f"first token, prefix of {_size(first)} again"
        await table.row(title, "s", partial(table.repeated, first))
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
@click.option("--short", is_flag=True, help="One run of each row, of less, and at most a minute.")
@click.option("--draft-model", help="Folder or hub id of a model that drafts.")
def main(model: str, short: bool, draft_model: str | None) -> None:
    """Print a table of the figures that other servers publish."""
    plan = attrs.evolve(SHORT if short else Plan(), draft_model=draft_model)
    trio.run(measure, model, plan)


if __name__ == "__main__":
    main()
