"""Statistics over responses and runs for a report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import attrs

from greenroom.tests.bench.answer import Answer


@attrs.frozen
class Spread:
    """Median of several runs, with the extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of at least one value."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])


@attrs.frozen
class Metric:
    """A quantity that a scenario measures in every run.

    Args:
        label: Name in the report.
        unit: Unit; empty for ratios and counts.
        digits: Number of significant decimal places.
    """

    label: str
    unit: str = ""
    digits: int = 2


@attrs.frozen
class Sample:
    """Measurements of one run of a scenario on one server.

    Args:
        values: Values by name of the scenario's metrics; those that could not be measured are missing.
        errors: Errors besides those of the responses.
        series: Series of numbers by name, for plots only.
    """

    values: Mapping[str, float]
    answers: Sequence[Answer]
    errors: Sequence[str] = ()
    series: Mapping[str, Sequence[float]] = attrs.field(factory=dict)


@attrs.frozen
class Figure:
    """One metric over all runs.

    Args:
        runs: Value of each run; None where it could not be measured.
    """

    label: str
    unit: str
    digits: int
    runs: Sequence[float | None]

    @property
    def spread(self) -> Spread | None:
        """Median and extremes; None if no run has a value."""
        values = [value for value in self.runs if value is not None]
        return Spread.of(values) if values else None

    def ratio_to(self, other: Figure) -> Figure:
        """Return the ratio of two servers, run by run."""
        pairs = zip(self.runs, other.runs, strict=True)
        return Figure(
            self.label, "", 2, [first / second if first and second else None for first, second in pairs]
        )


@attrs.frozen
class Result:
    """Results of one scenario on one server.

    Args:
        case: Variant of the scenario, such as `8 streams`; empty if there is only one.
        answers: Number of complete responses of all counted runs.
        prompt_tokens: Longest prompt in tokens by the server's count; 0 without one.
        series: Series of each run for a plot.
    """

    scenario: str
    case: str
    server: str
    runs: int
    answers: int
    tokens: int
    prompt_tokens: int
    figures: Mapping[str, Figure]
    errors: Sequence[str]
    series: Sequence[Mapping[str, Sequence[float]]]


def summarize(
    scenario: str, case: str, server: str, metrics: Mapping[str, Metric], samples: Sequence[Sample]
) -> Result:
    """Summarize all runs of one scenario on one server."""
    answers = [answer for sample in samples for answer in sample.answers]
    complete = [answer for answer in answers if answer.error is None]
    figures = {
        name: Figure(
            metric.label, metric.unit, metric.digits, [sample.values.get(name) for sample in samples]
        )
        for name, metric in metrics.items()
    }
    errors = {answer.error for answer in answers if answer.error is not None}
    return Result(
        scenario=scenario,
        case=case,
        server=server,
        runs=len(samples),
        answers=len(complete),
        tokens=sum(answer.tokens for answer in complete),
        prompt_tokens=max((answer.prompt_tokens for answer in complete), default=0),
        figures={name: figure for name, figure in figures.items() if figure.spread is not None},
        errors=sorted(errors.union(*(sample.errors for sample in samples))),
        series=[sample.series for sample in samples],
    )


def percentile(values: Iterable[float], rank: int) -> float:
    """Return the nearest-rank percentile of at least one value, which is always one of the values."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * rank // 100), 1) - 1]


def tokens_per_second(answers: Iterable[Answer]) -> float:
    """Return the throughput of concurrent responses, from the first request to the last token."""
    begun = [answer for answer in answers if answer.arrivals]
    if not begun:
        return 0.0
    seconds = max(answer.arrivals[-1] for answer in begun) - min(answer.sent for answer in begun)
    return sum(answer.tokens for answer in begun) / seconds if seconds > 0 else 0.0
