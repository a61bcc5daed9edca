"""From single answers to the figures of a report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import attrs

from greenroom.http.bench.answer import Answer


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
    """What a scenario measures in every run.

    Args:
        label: What the report calls it.
        unit: Empty for ratios and counts.
        digits: Decimal places that mean something.
    """

    label: str
    unit: str = ""
    digits: int = 2


@attrs.frozen
class Sample:
    """What one run of a scenario showed on one server.

    Args:
        values: By name of the scenario's metrics; what could not be measured is missing.
        errors: What went wrong besides the errors of the answers.
        series: Numbers by name that only a plot shows.
    """

    values: Mapping[str, float]
    answers: Sequence[Answer]
    errors: Sequence[str] = ()
    series: Mapping[str, Sequence[float]] = attrs.field(factory=dict)


@attrs.frozen
class Figure:
    """One metric over all runs.

    Args:
        runs: Its value in each run; None where it could not be measured.
    """

    label: str
    unit: str
    digits: int
    runs: Sequence[float | None]

    @property
    def spread(self) -> Spread | None:
        """None if no run has a value."""
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
    """What a report says about one scenario on one server.

    Args:
        case: Which of the loads of the scenario, such as `8 streams`; empty if there is only one.
        answers: Complete ones, of all runs that count.
        prompt_tokens: Longest prompt, as the server counts; 0 if it does not.
        series: What each run has for a plot.
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
    """Return the result of all runs of one scenario on one server."""
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
    """Return the nearest-rank percentile of at least one value: a value that occurred."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * rank // 100), 1) - 1]


def tokens_per_second(answers: Iterable[Answer]) -> float:
    """Return the tokens a second of answers that ran together, from the first request to the last token."""
    begun = [answer for answer in answers if answer.arrivals]
    if not begun:
        return 0.0
    seconds = max(answer.arrivals[-1] for answer in begun) - min(answer.sent for answer in begun)
    return sum(answer.tokens for answer in begun) / seconds if seconds > 0 else 0.0
