"""Load patterns, and their repeated runs on all servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from greenroom.tests.bench.figures import Metric, Result, Sample, percentile, summarize, tokens_per_second
from greenroom.tests.bench.load_client import Answer, Prompts
from greenroom.tests.bench.servers import Exchange, ProcessorTime, Request, TargetServer


class Scenario(ABC):
    """A load pattern. Each run sends it once, with new prompts."""

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, Metric]]
    warm_ups: ClassVar[int] = 1
    """Number of initial runs that do not count.

    MLX compiles kernels for new shapes, for half a second of CPU time each.
    """

    @property
    def case(self) -> str:
        """The variant of the scenario."""
        return ""

    @abstractmethod
    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        """Send requests, and return when all responses are complete.

        Args:
            number: Number of the run from 0, negative for warm-up. Even and odd runs measure the compared
                parts in opposite order, so that drift affects both alike.

        Raises:
            BenchError: The server does not listen, or the bare loop cannot run.
        """


@attrs.frozen
class Measurement:
    """Plan for running scenarios.

    Args:
        targets: Servers that receive the same prompts, in alternating order.
        repeats: Number of runs of each scenario that count, after warm-up.
        report_progress: Called with a description of the next run.
    """

    targets: Sequence[TargetServer]
    prompts: Prompts
    repeats: int
    report_progress: Callable[[str], None] = lambda _progress: None

    async def measure(self, scenario: Scenario) -> list[Result]:
        """Return the results of one scenario, one for each server."""
        samples: list[list[Sample]] = [[] for _ in self.targets]
        title = f"{scenario.name}, {scenario.case}"
        for number in range(-scenario.warm_ups, self.repeats):
            self.report_progress(
                f"{title}: " + ("warming up" if number < 0 else f"{number + 1} of {self.repeats}")
            )
            seed = self.prompts.new_seed()
            order = list(enumerate(self.targets))
            for index, target in reversed(order) if number % 2 else order:
                sample = await scenario.run(target, Prompts(seed), number)
                if number >= 0:
                    samples[index].append(sample)
        return [
            summarize(scenario.name, scenario.case, target.address, scenario.metrics, target_samples)
            for target, target_samples in zip(self.targets, samples, strict=True)
        ]


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


ALTERNATIVES = 5
"""Number of top candidates requested for every token."""


@attrs.frozen
class Mixed(Scenario):
    """Requests with individual sampling, penalties and log-probabilities, alternating with greedy ones.

    To catch servers that ignore parameters, the first run repeats every request alone and expects the same
    response, with log-probabilities for every token.

    Args:
        requests: Number of concurrent requests.
        tokens: Longest response, in tokens.
        prompt_words: Length of each prompt, in words.
    """

    name: ClassVar[str] = "mixed"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "rate": Metric("mixed requests", "tokens/s", 0),
        "greedy_rate": Metric("greedy requests", "tokens/s", 0),
        "of_greedy": Metric("mixed over greedy"),
        "of_batch_generator": Metric("mixed over mlx-lm's BatchGenerator, greedy"),
        "gap_p50": Metric("between tokens of mixed requests, p50", "ms", 1),
        "gap_p99": Metric("between tokens of mixed requests, p99", "ms", 1),
        "verified": Metric("requests that equal their solo run", "", 0),
    }

    requests: int = 16
    tokens: int = 64
    prompt_words: int = 32

    @property
    def case(self) -> str:
        return f"{self.requests} requests"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        accepted = await target.accepted_fields(request_fields(0, 0))
        mixed = [
            Request(
                prompts.chat(self.prompt_words),
                self.tokens,
                {
                    field: value
                    for field, value in request_fields(index, prompts.new_seed()).items()
                    if field in accepted
                },
            )
            for index in range(self.requests)
        ]
        greedy = [Request(prompts.chat(self.prompt_words), self.tokens) for _ in range(self.requests)]
        if number % 2:
            plain = await target.ask_together(greedy)
            exchanges = await target.ask_together(mixed)
        else:
            exchanges = await target.ask_together(mixed)
            plain = await target.ask_together(greedy)
        values = speeds(exchanges)
        if greedy_rate := speeds(plain).get("rate"):
            values["greedy_rate"] = greedy_rate
            values["of_greedy"] = values.get("rate", 0.0) / greedy_rate
        bare = await target.run_bare_loop("batch_generator", plain)
        if bare is not None and bare.tokens:
            values["of_batch_generator"] = values.get("rate", 0.0) * bare.seconds / bare.tokens
        errors = _missing_log_probabilities(exchanges)
        if number == 0:
            refused = sorted(set(request_fields(0, 0)) - set(accepted))
            errors += [f"the server refuses {', '.join(refused)}"] if refused else []
            values["verified"], differing = await _verify(target, mixed, exchanges)
            errors += differing
        return Sample(values, [exchange.answer for exchange in (*exchanges, *plain)], errors)


def request_fields(number: int, seed: int) -> dict[str, Any]:
    """Return the parameters of one request, which differ from those of its neighbors."""
    return {
        "temperature": 0.6 + 0.1 * (number % 8),
        "top_p": 0.8 + 0.01 * (number % 16),
        "top_k": 20 + 10 * number,
        "min_p": 0.002 * (number % 16),
        "repetition_penalty": 1.02 + 0.02 * (number % 10),
        "presence_penalty": 0.1 + 0.1 * (number % 8),
        "frequency_penalty": 0.05 + 0.05 * (number % 7),
        "seed": seed,
        "logprobs": True,
        "top_logprobs": ALTERNATIVES,
        "ignore_eos": True,
    }


def _missing_log_probabilities(exchanges: Sequence[Exchange]) -> list[str]:
    missing = 0
    for exchange in exchanges:
        given = exchange.answer.alternatives
        complete = len(given) >= len(exchange.answer.arrivals) and all(n == ALTERNATIVES for n in given)
        missing += exchange.answer.error is None and not complete
    return [f"{missing} of {len(exchanges)} requests lack log-probabilities"] if missing else []


async def _verify(
    target: TargetServer, requests: Sequence[Request], exchanges: Sequence[Exchange]
) -> tuple[float, list[str]]:
    """Return the number of requests whose response is the same alone, and errors if not all are."""
    differing = 0
    for request, exchange in zip(requests, exchanges, strict=True):
        alone = await target.ask(request.messages, request.max_tokens, **request.fields)
        same = (alone.answer.text, alone.answer.tokens) == (exchange.answer.text, exchange.answer.tokens)
        differing += not same or exchange.answer.error is not None
    if not differing:
        return len(requests), []
    return len(requests) - differing, [
        f"{differing} of {len(requests)} seeded requests differ from their solo runs; the speed is void"
    ]
