"""Concurrent streams, or a single one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from greenroom.tests.bench.answer import Answer
from greenroom.tests.bench.figures import Metric, Sample, percentile, tokens_per_second
from greenroom.tests.bench.measurement import Scenario
from greenroom.tests.bench.prompts import Prompts
from greenroom.tests.bench.target_server import Exchange, ProcessorTime, Request, TargetServer

SPEEDS: Mapping[str, Metric] = {
    "rate": Metric("speed", "tokens/s", 0),
    "first_p50": Metric("first token, p50", "ms", 1),
    "first_p99": Metric("first token, p99", "ms", 1),
    "gap_p50": Metric("between tokens, p50", "ms", 1),
    "gap_p99": Metric("between tokens, p99", "ms", 1),
}
"""Metrics of concurrent streams; see `speeds`."""

CLIENT_CPU: Mapping[str, Metric] = {
    "client_cpu": Metric("processor time of a token, load generator", "µs", 0)
}
"""Metric of the load generator's cost; see `client_cpu`."""

LOOPS = {"batch_generator": "mlx-lm's BatchGenerator", "bare_loop": "the bare loop"}


@attrs.frozen
class Streams(Scenario):
    """Streams that start together.

    Args:
        streams: Number of concurrent streams.
        tokens: Longest response, in tokens.
        prompt_words: Length of each prompt, in words.
    """

    name: ClassVar[str] = "streams"
    warm_ups: ClassVar[int] = 2
    metrics: ClassVar[Mapping[str, Metric]] = {
        **SPEEDS,
        **{f"of_{loop}": Metric(f"speed over that of {name}") for loop, name in LOOPS.items()},
        **{
            f"cpu_beyond_{loop}": Metric(f"processor time of a token beyond {name}", "µs", 0)
            for loop, name in LOOPS.items()
        },
        "own_over_bare": Metric("speed of the worker's loop, without a server, over the bare loop"),
        **CLIENT_CPU,
    }

    streams: int
    tokens: int
    prompt_words: int

    @property
    def case(self) -> str:
        return "1 stream" if self.streams == 1 else f"{self.streams} streams"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        requests = [Request(prompts.chat(self.prompt_words), self.tokens) for _ in range(self.streams)]
        before = target.processor_time()
        exchanges = await target.ask_together(requests)
        after = target.processor_time()
        answers = [exchange.answer for exchange in exchanges]
        values = speeds(exchanges)
        if own := client_cpu(answers, before, after):
            values |= own
            values |= await self._compare(target, exchanges, values["rate"], before, after)
        return Sample(values, answers)

    async def _compare(
        self,
        target: TargetServer,
        exchanges: Sequence[Exchange],
        rate: float,
        before: ProcessorTime,
        after: ProcessorTime,
    ) -> dict[str, float]:
        values: dict[str, float] = {}
        seconds = {}
        for loop in LOOPS:
            bare = await target.run_bare_loop(loop, exchanges)
            if bare is None or not bare.tokens:
                continue
            seconds[loop] = bare.seconds
            values[f"of_{loop}"] = rate * bare.seconds / bare.tokens
            if before.server is not None and after.server is not None:
                beyond = (after.server - before.server) / bare.tokens - bare.cpu / bare.tokens
                values[f"cpu_beyond_{loop}"] = beyond * 1e6
        own = await target.run_bare_loop("own_loop", exchanges)
        if own is not None and own.seconds and "bare_loop" in seconds:
            values["own_over_bare"] = seconds["bare_loop"] / own.seconds
        return values


def speeds(exchanges: Sequence[Exchange]) -> dict[str, float]:
    """Return throughput and latencies (in milliseconds) of concurrent streams."""
    answers = [exchange.answer for exchange in exchanges if exchange.answer.arrivals]
    values = {"rate": tokens_per_second(answers)} if answers else {}
    firsts = [answer.time_to_first_token * 1e3 for answer in answers]
    gaps = [gap * 1e3 for answer in answers for gap in answer.inter_token_latencies]
    for name, times in (("first", firsts), ("gap", gaps)):
        if times:
            values |= {f"{name}_p50": percentile(times, 50), f"{name}_p99": percentile(times, 99)}
    return values


def client_cpu(answers: Sequence[Answer], before: ProcessorTime, after: ProcessorTime) -> dict[str, float]:
    """Return the load generator's processor time per token, in microseconds; empty without tokens."""
    tokens = sum(answer.tokens for answer in answers)
    return {"client_cpu": (after.client - before.client) / tokens * 1e6} if tokens else {}
