"""A conversation that grows turn by turn, like an agent's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import ClassVar

import attrs

from greenroom.tests.bench.figures import Metric, Sample
from greenroom.tests.bench.load_client import Answer, ChatMessages, Prompts
from greenroom.tests.bench.scenarios import Scenario
from greenroom.tests.bench.servers import TargetServer

BarePrefill = Callable[[ChatMessages, ChatMessages], float]
"""Takes the cached messages and all messages; returns the seconds for the tokens behind the cached ones."""
_SYSTEM_WORDS = 256


@attrs.frozen
class Conversation(Scenario):
    """Turns that each send the whole conversation, and after each turn two uncached prompts as baselines.

    One baseline is as long as the conversation, the other as long as the tokens that the turn added (the
    previous response and the new message). A server that caches the whole conversation should need about the
    time of the second. New tokens cost more late in a conversation, since they attend to all of it; mlx-lm's
    prefill behind a cache of the rest measures that cost.

    Args:
        turns: Number of turns after the first.
        tokens: Longest response, in tokens.
        words: Length of each message, in words.
        bare_prefill: mlx-lm's prefill of the new tokens of a turn; None without a model at hand.
    """

    name: ClassVar[str] = "conversation"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "last": Metric("first token, last turn", "ms", 1),
        "last_cold": Metric("first token, cold prompt of that length", "ms", 1),
        "median_over_cold": Metric("turn over cold, median turn", "", 3),
        "worst_over_cold": Metric("turn over cold, worst turn", "", 3),
        "median_beyond_new": Metric("turn less its new tokens, over cold, median turn", "", 3),
        "worst_beyond_new": Metric("turn less its new tokens, over cold, worst turn", "", 3),
        "median_beyond_bare": Metric("turn less its new tokens by mlx-lm, over cold, median turn", "", 3),
        "worst_beyond_bare": Metric("turn less its new tokens by mlx-lm, over cold, worst turn", "", 3),
        "cached": Metric("cached share of the prompt, worst turn"),
        "bare": Metric("mlx-lm's bare prefill of the last cold prompt", "ms", 1),
        "cold_over_bare": Metric("cold over mlx-lm's bare prefill, last turn"),
    }

    turns: int = 10
    tokens: int = 64
    words: int = 32
    bare_prefill: BarePrefill | None = None

    @property
    def case(self) -> str:
        return f"{self.turns} turns"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        messages: list[Mapping[str, str]] = [{"role": "system", "content": prompts.text(_SYSTEM_WORDS)}]
        answers: list[Answer] = []
        turns: list[_Turn] = []
        length = 0
        sent: tuple[Mapping[str, str], ...] = ()
        for turn in range(self.turns + 1):
            messages.append({"role": "user", "content": prompts.text(self.words)})
            cached, sent = sent, tuple(messages)
            exchange = await target.ask(sent, self.tokens)
            answer = exchange.answer
            answers.append(answer)
            if answer.error is not None:
                return Sample({}, answers)
            messages.append({"role": "assistant", "content": answer.text})
            added, length = exchange.prompt_tokens - length, exchange.prompt_tokens
            if turn == 0:
                continue
            new = await target.ask(prompts.chat(await target.words_for_tokens(added)), 1)
            cold = await target.ask(prompts.chat(await target.words_for_tokens(length)), 1)
            answers += [new.answer, cold.answer]
            if new.answer.error is not None or cold.answer.error is not None:
                return Sample({}, answers)
            added_bare = None if self.bare_prefill is None else self.bare_prefill(cached, sent)
            new_first, cold_first = new.answer.time_to_first_token, cold.answer.time_to_first_token
            turns.append(_Turn(length, answer, new_first, cold_first, added_bare))
        values = _values(turns)
        bare = await target.run_bare_loop("bare_prefill", [cold])
        if bare is not None:
            values |= {"bare": bare.seconds * 1e3, "cold_over_bare": turns[-1].cold / bare.seconds}
        return Sample(values, answers)


@attrs.frozen
class _Turn:
    """Measurements of one turn.

    Args:
        length: Number of prompt tokens.
        new: Time to first token of an uncached prompt as long as the added part, in seconds.
        cold: Time to first token of an uncached prompt as long as the conversation, in seconds.
        bare: Time of mlx-lm's prefill of the added part behind a cache of the rest, in seconds.
    """

    length: int
    answer: Answer
    new: float
    cold: float
    bare: float | None

    @property
    def over_cold(self) -> float:
        return self.answer.time_to_first_token / self.cold

    @property
    def beyond_new(self) -> float:
        return (self.answer.time_to_first_token - self.new) / self.cold

    @property
    def beyond_bare(self) -> float | None:
        return None if self.bare is None else (self.answer.time_to_first_token - self.bare) / self.cold


def _values(turns: list[_Turn]) -> dict[str, float]:
    over, beyond = [turn.over_cold for turn in turns], [turn.beyond_new for turn in turns]
    values = {
        "last": turns[-1].answer.time_to_first_token * 1e3,
        "last_cold": turns[-1].cold * 1e3,
        "median_over_cold": statistics.median(over),
        "worst_over_cold": max(over),
        "median_beyond_new": statistics.median(beyond),
        "worst_beyond_new": max(beyond),
    }
    if bare := [turn.beyond_bare for turn in turns if turn.beyond_bare is not None]:
        values |= {"median_beyond_bare": statistics.median(bare), "worst_beyond_bare": max(bare)}
    cached = [turn.answer.cached_tokens for turn in turns]
    shares = [count / turn.length for count, turn in zip(cached, turns, strict=True) if count is not None]
    return {**values, "cached": min(shares)} if shares else values
