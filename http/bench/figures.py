"""From single exchanges to the figures of a report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import attrs

from greenroom.http.bench.load_client import ChatMessages
from greenroom.http.bench.reading import Answer


@attrs.frozen
class Spread:
    """Median of several runs, with the extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of at least one value."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])


@attrs.frozen
class Percentiles:
    """Of all samples of all runs."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles | None:
        """Nearest-rank percentiles, or None if there is nothing to rank."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(*(ordered[-(-len(ordered) * rank // 100) - 1] for rank in (50, 90, 99)))


@attrs.frozen
class Exchange:
    """What was asked and what came back."""

    messages: ChatMessages
    answer: Answer


@attrs.frozen
class BareRun:
    """What a loop without a server took for the same prompts and as many tokens.

    Args:
        seconds: Wall time of prefill and decoding.
        cpu: Seconds of processor time.
    """

    seconds: float
    tokens: int
    cpu: float


@attrs.frozen
class Run:
    """One pass through a scenario.

    Args:
        client_cpu: Seconds of processor time that the load generator took while it waited.
        server_cpu: Likewise the server, where it is a process of ours.
        bare: Runs of the bare loops by name, right after this one.
    """

    exchanges: tuple[Exchange, ...]
    client_cpu: float
    server_cpu: float | None = None
    bare: dict[str, BareRun] = attrs.field(factory=dict)

    @property
    def tokens(self) -> int:
        return sum(exchange.answer.tokens for exchange in self.exchanges)

    @property
    def errors(self) -> list[str]:
        return [exchange.answer.error for exchange in self.exchanges if exchange.answer.error]

    @property
    def rate(self) -> float:
        """Tokens a second, from the first request to the last token."""
        answers = [exchange.answer for exchange in self.exchanges if exchange.answer.arrivals]
        if not answers:
            return 0.0
        began, ended = min(a.sent for a in answers), max(a.arrivals[-1] for a in answers)
        return self.tokens / (ended - began) if ended > began else 0.0


@attrs.frozen
class Figures:
    """What a report says about one scenario. Times are in milliseconds, processor time in µs per token.

    Args:
        prompt_tokens: Of a prompt, on average, as the server counts them.
        ratio: Server's tokens a second over each bare loop's, pair by pair.
        cpu_beyond: Processor time of the server beyond each bare loop's.
    """

    scenario: str
    streams: int
    runs: int
    tokens: int
    prompt_tokens: float
    rate: Spread
    first: Percentiles | None
    gap: Percentiles | None
    client_cpu: float
    server_cpu: float | None
    ratio: dict[str, Spread]
    pairs: dict[str, list[float]]
    cpu_beyond: dict[str, float]
    errors: list[str]


def figures(scenario: str, streams: int, runs: Sequence[Run]) -> Figures:
    """Sum up the runs of one scenario."""
    answers = [e.answer for run in runs for e in run.exchanges if e.answer.arrivals]
    tokens = sum(run.tokens for run in runs)
    server_cpu = None
    if tokens and all(run.server_cpu is not None for run in runs):
        server_cpu = sum(run.server_cpu or 0.0 for run in runs) / tokens * 1e6
    pairs = {name: _ratios(runs, name) for name in runs[0].bare}
    return Figures(
        scenario=scenario,
        streams=streams,
        runs=len(runs),
        tokens=tokens,
        prompt_tokens=sum(answer.prompt_tokens for answer in answers) / max(len(answers), 1),
        rate=Spread.of(run.rate for run in runs),
        first=Percentiles.of(answer.first * 1e3 for answer in answers),
        gap=Percentiles.of(gap * 1e3 for answer in answers for gap in answer.gaps),
        client_cpu=sum(run.client_cpu for run in runs) / max(tokens, 1) * 1e6,
        server_cpu=server_cpu,
        ratio={name: Spread.of(ratios) for name, ratios in pairs.items() if ratios},
        pairs=pairs,
        cpu_beyond={name: server_cpu - _bare_cpu(runs, name) for name in pairs if server_cpu is not None},
        errors=sorted({error for run in runs for error in run.errors}),
    )


def _ratios(runs: Sequence[Run], name: str) -> list[float]:
    return [run.rate * run.bare[name].seconds / run.bare[name].tokens for run in runs if run.tokens]


def _bare_cpu(runs: Sequence[Run], name: str) -> float:
    return sum(run.bare[name].cpu for run in runs) / sum(run.bare[name].tokens for run in runs) * 1e6
