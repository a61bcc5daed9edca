"""A long prompt that arrives among running streams: what they notice, and how long it waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import attrs
import trio

from greenroom.http.bench.figures import Quantity, Sample, percentile
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.reading import Answer, read
from greenroom.http.bench.recorder import Recording
from greenroom.http.bench.scenario import Scenario
from greenroom.http.bench.target_server import Exchange, TargetServer

_LONGER_THAN_ANY = 8192
"""Tokens that the running streams ask for; they are hung up on when the newcomer is done."""
_SETTLED = 16
"""Events of every stream before the undisturbed time begins."""
_PERIODS = {
    "prefilling": "while it prefills",
    "decoding": "from its first token to its last",
    "present": "from its arrival to its last token",
}


@attrs.frozen
class LongPrompt(Scenario):
    """A long prompt among streams that outlast it, and in turns a long prompt alone.

    Args:
        streams: How many run when it arrives.
        prompt_tokens: Its length.
        tokens: Length of its answer.
        undisturbed: Events of every stream before it arrives, which later ones are compared with.
        stream_words: Length of the prompts of the streams.
    """

    name: ClassVar[str] = "long-prompt"
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "undisturbed_p50": Quantity("between tokens of the streams before it arrives, p50", "ms", 1),
        "undisturbed_p99": Quantity("the same, p99", "ms", 1),
        **{f"{name}_p99": Quantity(f"p99 {meaning}", "ms", 1) for name, meaning in _PERIODS.items()},
        **{
            f"{name}_over_p99": Quantity(f"p99 {meaning}, over undisturbed p99")
            for name, meaning in _PERIODS.items()
        },
        **{
            f"{name}_over_p50": Quantity(f"p99 {meaning}, over undisturbed p50")
            for name, meaning in _PERIODS.items()
        },
        "longest": Quantity("longest time between tokens while it prefills", "ms", 1),
        "first": Quantity("its first token", "ms", 0),
        "alone": Quantity("first token of such a prompt alone", "ms", 0),
        "bare": Quantity("mlx-lm's bare prefill of that", "ms", 0),
        "first_over_alone": Quantity("first token, among streams over alone"),
        "alone_over_bare": Quantity("first token, alone over mlx-lm's bare prefill"),
    }

    streams: int = 8
    prompt_tokens: int = 3600
    tokens: int = 200
    undisturbed: int = 100
    stream_words: int = 32

    @property
    def case(self) -> str:
        return f"{self.prompt_tokens} tokens among {self.streams} streams"

    async def run(self, contestant: TargetServer, prompts: Prompts, number: int) -> Sample:
        words = await contestant.words_for(self.prompt_tokens)
        endless = await contestant.taken({"ignore_eos": True})
        if number % 2:
            among = await self._among(contestant, prompts, words, endless)
            await _until_left(contestant, prompts)
            alone = await contestant.ask(prompts.chat(words), 1)
        else:
            alone = await contestant.ask(prompts.chat(words), 1)
            among = await self._among(contestant, prompts, words, endless)
            await _until_left(contestant, prompts)
        values, errors = among.values(), among.errors()
        if alone.answer.arrivals:
            values |= await _alone(contestant, alone, values.get("first"))
        answers = [alone.answer, among.newcomer, *among.streams]
        return Sample(values, answers, errors, among.series())

    async def _among(
        self, contestant: TargetServer, prompts: Prompts, words: int, endless: Mapping[str, Any]
    ) -> _Among:
        client = contestant.client
        async with AsyncExitStack() as stack:
            running: list[Recording] = []
            for _ in range(self.streams):
                messages = prompts.chat(self.stream_words)
                stream = client.open(messages, _LONGER_THAN_ANY, **endless)
                running.append(await stack.enter_async_context(stream))
            for recording in running:
                await recording.reach(_SETTLED)
            settled = time.perf_counter()
            counts = [recording.events for recording in running]
            for recording, count in zip(running, counts, strict=True):
                await recording.reach(count + self.undisturbed)
            newcomer = await client.ask(prompts.chat(words), self.tokens, **endless)
            outlasted = sum(not recording.done.is_set() for recording in running)
        return _Among([read(recording) for recording in running], read(newcomer), settled, outlasted)


@attrs.frozen
class _Among:
    """What came of a long prompt among streams.

    Args:
        settled: Time from which the streams were undisturbed, until the newcomer was sent.
        outlasted: Streams that still ran when the newcomer was done.
    """

    streams: Sequence[Answer]
    newcomer: Answer
    settled: float
    outlasted: int

    def errors(self) -> list[str]:
        """Why the figures would not mean what they say."""
        ended = len(self.streams) - self.outlasted
        return (
            [f"{ended} of {len(self.streams)} streams ended before the long prompt's answer"] if ended else []
        )

    def values(self) -> dict[str, float]:
        """Times between tokens of the streams, in milliseconds, and their ratios."""
        if self.errors() or not self.newcomer.arrivals:
            return {}
        sent, first, last = self.newcomer.sent, self.newcomer.arrivals[0], self.newcomer.arrivals[-1]
        before = [gap for begun, ended, gap in self._gaps() if begun >= self.settled and ended <= sent]
        prefilling = [gap for begun, ended, gap in self._gaps() if begun < first and ended > sent]
        decoding = [gap for begun, _, gap in self._gaps() if first <= begun < last]
        if not (before and prefilling and decoding):
            return {"first": self.newcomer.first * 1e3}
        p50, p99 = percentile(before, 50), percentile(before, 99)
        values = {"undisturbed_p50": p50, "undisturbed_p99": p99}
        periods = {"prefilling": prefilling, "decoding": decoding, "present": [*prefilling, *decoding]}
        for name, gaps in periods.items():
            slow = percentile(gaps, 99)
            values |= {f"{name}_p99": slow, f"{name}_over_p99": slow / p99, f"{name}_over_p50": slow / p50}
        return {**values, "longest": max(prefilling), "first": self.newcomer.first * 1e3}

    def series(self) -> dict[str, list[float]]:
        """Every time between two tokens with when it ended, seen from the newcomer's arrival."""
        if not self.newcomer.arrivals:
            return {}
        sent = self.newcomer.sent
        gaps = sorted((ended - sent, gap) for begun, ended, gap in self._gaps() if begun >= self.settled)
        marks = [self.newcomer.arrivals[0] - sent, self.newcomer.arrivals[-1] - sent]
        return {"seconds": [at for at, _ in gaps], "gaps": [gap for _, gap in gaps], "marks": marks}

    def _gaps(self) -> list[tuple[float, float, float]]:
        """Begin and end in seconds, length in milliseconds, of all streams; what comes together is waited
        for once."""
        return [
            (begun, ended, (ended - begun) * 1e3)
            for answer in self.streams
            for begun, ended in zip(answer.arrivals, answer.arrivals[1:], strict=False)
            if ended > begun
        ]


async def _alone(contestant: TargetServer, alone: Exchange, among: float | None) -> dict[str, float]:
    values = {"alone": alone.answer.first * 1e3}
    if among is not None:
        values["first_over_alone"] = among / values["alone"]
    bare = await contestant.bare("bare_prefill", [alone])
    if bare is not None:
        values |= {"bare": bare.seconds * 1e3, "alone_over_bare": alone.answer.first / bare.seconds}
    return values


async def _until_left(contestant: TargetServer, prompts: Prompts) -> None:
    """Give the server time to notice that the streams are gone."""
    await contestant.ask(prompts.chat(1), 1)
    await trio.sleep(0.2)
