"""A conversation that grows turn by turn, as an agent's does."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import ClassVar

import attrs

from greenroom.http.bench.figures import Quantity, Sample
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.reading import Answer
from greenroom.http.bench.scenario import Scenario
from greenroom.http.bench.target_server import TargetServer

_SYSTEM_WORDS = 256


@attrs.frozen
class Conversation(Scenario):
    """Turns that each send all that was said; after each, two prompts that nobody knows.

    One of these is as long as the conversation, the other as long as what the turn added to it: the answer
    before and the new message. A server that forgets nothing needs the time of the second and next to none
    of that of the first. New tokens cost more at the end of a conversation than at its beginning, since they
    attend to all of it: what they cost there is what mlx-lm needs for them behind a cache of the rest.

    Args:
        turns: Those after the opening one.
        tokens: Longest answer.
        words: Length of each message.
    """

    name: ClassVar[str] = "conversation"
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "last": Quantity("first token, last turn", "ms", 1),
        "last_cold": Quantity("first token, cold prompt of that length", "ms", 1),
        "median_over_cold": Quantity("turn over cold, median turn", "", 3),
        "worst_over_cold": Quantity("turn over cold, worst turn", "", 3),
        "median_beyond_new": Quantity("turn less its new tokens, over cold, median turn", "", 3),
        "worst_beyond_new": Quantity("turn less its new tokens, over cold, worst turn", "", 3),
        "median_beyond_bare": Quantity("turn less its new tokens by mlx-lm, over cold, median turn", "", 3),
        "worst_beyond_bare": Quantity("turn less its new tokens by mlx-lm, over cold, worst turn", "", 3),
        "cached": Quantity("cached share of the prompt, worst turn"),
        "bare": Quantity("mlx-lm's bare prefill of the last cold prompt", "ms", 1),
        "cold_over_bare": Quantity("cold over mlx-lm's bare prefill, last turn"),
    }

    turns: int = 10
    tokens: int = 64
    words: int = 32

    @property
    def case(self) -> str:
        return f"{self.turns} turns"

    async def run(self, contestant: TargetServer, prompts: Prompts, number: int) -> Sample:
        messages: list[Mapping[str, str]] = [{"role": "system", "content": prompts.text(_SYSTEM_WORDS)}]
        answers: list[Answer] = []
        turns: list[_Turn] = []
        length = 0
        known: tuple[Mapping[str, str], ...] = ()
        for turn in range(self.turns + 1):
            messages.append({"role": "user", "content": prompts.text(self.words)})
            earlier, known = known, tuple(messages)
            said = await contestant.ask(known, self.tokens)
            answer = said.answer
            answers.append(answer)
            if answer.error is not None:
                return Sample({}, answers)
            messages.append({"role": "assistant", "content": answer.text})
            grown, length = said.prompt_tokens - length, said.prompt_tokens
            if turn == 0:
                continue
            new = await contestant.ask(prompts.chat(await contestant.words_for(grown)), 1)
            cold = await contestant.ask(prompts.chat(await contestant.words_for(length)), 1)
            answers += [new.answer, cold.answer]
            if new.answer.error is not None or cold.answer.error is not None:
                return Sample({}, answers)
            beside = await contestant.bare_continuation(earlier, known)
            added = None if beside is None else beside.seconds
            turns.append(_Turn(length, answer, new.answer.first, cold.answer.first, added))
        values = _values(turns)
        bare = await contestant.bare("bare_prefill", [cold])
        if bare is not None:
            values |= {"bare": bare.seconds * 1e3, "cold_over_bare": turns[-1].cold / bare.seconds}
        return Sample(values, answers, series=_series(turns))


@attrs.frozen
class _Turn:
    """One turn: its answer, and the seconds to the first token of what it is compared with."""

    length: int
    answer: Answer
    new: float
    cold: float
    added: float | None

    @property
    def over_cold(self) -> float:
        return self.answer.first / self.cold

    @property
    def beyond_new(self) -> float:
        return (self.answer.first - self.new) / self.cold

    @property
    def beyond_bare(self) -> float | None:
        return None if self.added is None else (self.answer.first - self.added) / self.cold


def _values(turns: list[_Turn]) -> dict[str, float]:
    over, beyond = [turn.over_cold for turn in turns], [turn.beyond_new for turn in turns]
    values = {
        "last": turns[-1].answer.first * 1e3,
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


def _series(turns: list[_Turn]) -> dict[str, list[float]]:
    added = {"added": [turn.added * 1e3 for turn in turns if turn.added is not None]}
    return added | {
        "tokens": [turn.length for turn in turns],
        "turn": [turn.answer.first * 1e3 for turn in turns],
        "new": [turn.new * 1e3 for turn in turns],
        "cold": [turn.cold * 1e3 for turn in turns],
    }
