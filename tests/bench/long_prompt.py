"""A long prompt that arrives among running streams: stalls of the streams, and time to first token."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import attrs
import trio

from greenroom.tests.bench.figures import Metric, Sample, percentile
from greenroom.tests.bench.load_client import Answer, ChatMessages, Prompts, RecordedResponse, parse_answer
from greenroom.tests.bench.scenarios import Scenario
from greenroom.tests.bench.servers import Exchange, TargetServer

Newcomers = Callable[[Prompts], ChatMessages]
"""Creates the messages of a request that arrives among the streams, new each time."""

_LONGEST_ANSWER = 8192
"""Token limit of the running streams, which are disconnected once the newcomer is complete."""
_EVENTS_BEFORE = 16
"""Events that every stream must have received before the undisturbed period starts."""
_PERIODS = {
    "prefilling": "while it prefills",
    "decoding": "from its first token to its last",
    "present": "from its arrival to its last token",
}


@attrs.frozen
class LongPrompt(Scenario):
    """A long prompt among streams that outlast it, alternating with a long prompt alone.

    Args:
        streams: Number of running streams.
        prompt_tokens: Length of the long prompt, in tokens.
        tokens: Length of its response, in tokens.
        undisturbed: Number of events per stream before it arrives, which serve as a baseline.
        stream_words: Length of the streams' prompts, in words.
    """

    name: ClassVar[str] = "long-prompt"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "undisturbed_p50": Metric("between tokens of the streams before it arrives, p50", "ms", 1),
        "undisturbed_p99": Metric("the same, p99", "ms", 1),
        **{f"{name}_p99": Metric(f"p99 {meaning}", "ms", 1) for name, meaning in _PERIODS.items()},
        **{
            f"{name}_over_p99": Metric(f"p99 {meaning}, over undisturbed p99")
            for name, meaning in _PERIODS.items()
        },
        **{
            f"{name}_over_p50": Metric(f"p99 {meaning}, over undisturbed p50")
            for name, meaning in _PERIODS.items()
        },
        "longest": Metric("longest time between tokens while it prefills", "ms", 1),
        "first": Metric("its first token", "ms", 0),
        "alone": Metric("first token of such a prompt alone", "ms", 0),
        "bare": Metric("mlx-lm's bare prefill of that", "ms", 0),
        "first_over_alone": Metric("first token, among streams over alone"),
        "alone_over_bare": Metric("first token, alone over mlx-lm's bare prefill"),
    }

    streams: int = 8
    prompt_tokens: int = 3600
    tokens: int = 200
    undisturbed: int = 100
    stream_words: int = 32

    @property
    def case(self) -> str:
        return f"{self.prompt_tokens} tokens among {self.streams} streams"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        newcomers = await self.newcomers(target)
        endless = await target.accepted_fields({"ignore_eos": True})
        if number % 2:
            among = await self._measure_among_streams(target, prompts, newcomers, endless)
            await _wait_for_disconnects(target, prompts)
            alone = await target.ask(newcomers(prompts), 1)
        else:
            alone = await target.ask(newcomers(prompts), 1)
            among = await self._measure_among_streams(target, prompts, newcomers, endless)
            await _wait_for_disconnects(target, prompts)
        values, errors = among.values(), among.errors()
        if alone.answer.arrivals:
            values |= _alone(alone, values.get("first"), await self.bare_milliseconds(target, alone))
        answers = [alone.answer, among.newcomer, *among.streams]
        return Sample(values, answers, errors)

    async def newcomers(self, target: TargetServer) -> Newcomers:
        """Return a function that makes prompts of that length."""
        words = await target.words_for_tokens(self.prompt_tokens)
        return lambda prompts: prompts.chat(words)

    async def bare_milliseconds(self, target: TargetServer, alone: Exchange) -> float | None:
        """Return the time of mlx-lm's bare prefill for a newcomer, in milliseconds; None without a loop."""
        bare = await target.run_bare_loop("bare_prefill", [alone])
        return None if bare is None else bare.seconds * 1e3

    async def _measure_among_streams(
        self, target: TargetServer, prompts: Prompts, newcomers: Newcomers, endless: Mapping[str, Any]
    ) -> _StreamedBeside:
        client = target.client
        async with AsyncExitStack() as stack:
            running: list[RecordedResponse] = []
            for _ in range(self.streams):
                messages = prompts.chat(self.stream_words)
                stream = client.stream(messages, _LONGEST_ANSWER, **endless)
                running.append(await stack.enter_async_context(stream))
            for response in running:
                await response.wait_for_events(_EVENTS_BEFORE)
            messages = newcomers(prompts)
            undisturbed_since = time.perf_counter()
            counts = [response.events for response in running]
            for response, count in zip(running, counts, strict=True):
                await response.wait_for_events(count + self.undisturbed)
            newcomer = await client.ask(messages, self.tokens, **endless)
            outlasted = sum(not response.done.is_set() for response in running)
        return _StreamedBeside(
            [parse_answer(response) for response in running],
            parse_answer(newcomer),
            undisturbed_since,
            outlasted,
        )


@attrs.frozen
class _StreamedBeside:
    """Responses to a long prompt and to the streams beside it.

    Args:
        undisturbed_since: Start of the undisturbed period, which ends when the newcomer is sent.
        outlasted: Number of streams that outlasted the newcomer.
    """

    streams: Sequence[Answer]
    newcomer: Answer
    undisturbed_since: float
    outlasted: int

    def errors(self) -> list[str]:
        """Return the reasons why the figures are invalid."""
        ended = len(self.streams) - self.outlasted
        return (
            [f"{ended} of {len(self.streams)} streams ended before the long prompt's answer"] if ended else []
        )

    def values(self) -> dict[str, float]:
        """Return inter-token latencies of the streams in milliseconds, and their ratios."""
        if self.errors() or not self.newcomer.arrivals:
            return {}
        sent, first, last = self.newcomer.sent, self.newcomer.arrivals[0], self.newcomer.arrivals[-1]
        before = [
            gap for begun, ended, gap in self._gaps() if begun >= self.undisturbed_since and ended <= sent
        ]
        prefilling = [gap for begun, ended, gap in self._gaps() if begun < first and ended > sent]
        decoding = [gap for begun, _, gap in self._gaps() if first <= begun < last]
        if not (before and prefilling and decoding):
            return {"first": self.newcomer.time_to_first_token * 1e3}
        p50, p99 = percentile(before, 50), percentile(before, 99)
        values = {"undisturbed_p50": p50, "undisturbed_p99": p99}
        periods = {"prefilling": prefilling, "decoding": decoding, "present": [*prefilling, *decoding]}
        for name, gaps in periods.items():
            slow = percentile(gaps, 99)
            values |= {f"{name}_p99": slow, f"{name}_over_p99": slow / p99, f"{name}_over_p50": slow / p50}
        return {**values, "longest": max(prefilling), "first": self.newcomer.time_to_first_token * 1e3}

    def _gaps(self) -> list[tuple[float, float, float]]:
        """Return start and end in seconds and length in milliseconds of all gaps between tokens."""
        return [
            (begun, ended, (ended - begun) * 1e3)
            for answer in self.streams
            for begun, ended in zip(answer.arrivals, answer.arrivals[1:], strict=False)
            if ended > begun
        ]


def _alone(alone: Exchange, among: float | None, bare: float | None) -> dict[str, float]:
    """Return the figures of a newcomer alone, with times in milliseconds."""
    values = {"alone": alone.answer.time_to_first_token * 1e3}
    if among is not None:
        values["first_over_alone"] = among / values["alone"]
    if bare is not None:
        values |= {"bare": bare, "alone_over_bare": values["alone"] / bare}
    return values


async def _wait_for_disconnects(target: TargetServer, prompts: Prompts) -> None:
    """Wait until the server has noticed the disconnects of the streams."""
    await target.ask(prompts.chat(1), 1)
    await trio.sleep(0.2)
