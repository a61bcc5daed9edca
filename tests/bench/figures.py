"""Statistics over responses and runs, as tables for people and as JSON for programs."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from greenroom.tests.bench.load_client import Answer


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
    """

    values: Mapping[str, float]
    answers: Sequence[Answer]
    errors: Sequence[str] = ()


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


_PACKAGES = ("greenroom", "mlx", "mlx-lm")

Results = Sequence[Sequence[Result]]
"""Results by scenario, and then by server."""


def as_json(results: Results, model: str) -> dict[str, Any]:
    """Return all results, with machine, versions and command."""
    return {
        "model": model,
        **describe_environment(),
        "results": [_document(result) for row in results for result in row],
        "ratios": [
            {"scenario": first.scenario, "case": first.case, "figures": _figures(_ratios(first, second))}
            for first, second in (row for row in results if len(row) == 2)
        ],
    }


def print_tables(results: Results, model: str, console: Console) -> None:
    """Print one table per scenario, or per case if two servers are compared."""
    compared = [row for row in results if len(row) == 2]
    kinds = dict.fromkeys(row[0].scenario for row in results if len(row) == 1)
    cases = [[row[0] for row in results if row[0].scenario == kind] for kind in kinds]
    for columns in (*map(_Columns.of_servers, compared), *map(_Columns.of_cases, cases)):
        _print(columns, model, console)
    for error in _errors(results):
        console.print(f"failed: {error}", style="red", markup=False)


@attrs.frozen
class _Columns:
    """Columns of one table: `results`, and possibly their ratios."""

    title: str
    results: Sequence[Result]
    heads: Sequence[str]
    figures: Sequence[Mapping[str, Figure]]

    @classmethod
    def of_cases(cls, results: Sequence[Result]) -> _Columns:
        """Return columns for the cases of one scenario."""
        heads = [result.case for result in results]
        return cls(results[0].scenario, results, heads, [result.figures for result in results])

    @classmethod
    def of_servers(cls, results: Sequence[Result]) -> _Columns:
        """Return columns for two servers and their ratio."""
        first, second = results
        heads = [first.server, second.server, "ratio"]
        title = f"{first.scenario}, {first.case}"
        return cls(title, results, heads, [first.figures, second.figures, _ratios(first, second)])


def _print(columns: _Columns, model: str, console: Console) -> None:
    table = Table(
        title=f"{columns.title}: {model} at {columns.results[0].server}",
        caption=_caption(columns.results),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("")
    for head in columns.heads:
        table.add_column(head, justify="right")
    names = dict.fromkeys(name for figures in columns.figures for name in figures)
    for name in names:
        label = next(_label(figures[name]) for figures in columns.figures if name in figures)
        table.add_row(label, *(_cell(figures.get(name)) for figures in columns.figures))
    console.print(table)


def _caption(results: Sequence[Result]) -> str:
    runs = results[0].runs
    longest = max(result.prompt_tokens for result in results)
    complete = sum(result.answers for result in results)
    prompts = f"prompts of up to {longest} tokens" if longest else "prompts that the server does not count"
    return f"Median (lowest-highest) of {runs} runs; {complete} complete answers; new {prompts}."


def _label(figure: Figure) -> str:
    return f"{figure.label}, {figure.unit}" if figure.unit else figure.label


def _cell(figure: Figure | None) -> str:
    spread = None if figure is None else figure.spread
    if figure is None or spread is None:
        return ""
    middle, low, high = (
        f"{value:.{_digits(figure, spread.high)}f}" for value in (spread.median, spread.low, spread.high)
    )
    return middle if low == high else f"{middle}\u00a0({low}\u2011{high})"


def _digits(figure: Figure, largest: float) -> int:
    return 0 if figure.unit and largest >= 100 else figure.digits


def _ratios(first: Result, second: Result) -> dict[str, Figure]:
    both = [name for name in first.figures if name in second.figures]
    ratios = {name: first.figures[name].ratio_to(second.figures[name]) for name in both}
    return {name: ratio for name, ratio in ratios.items() if ratio.spread is not None}


def _errors(results: Results) -> list[str]:
    failed = [(result, error) for row in results for result in row for error in result.errors]
    return [f"{result.scenario}, {result.case}, {result.server}: {error}" for result, error in failed]


def _document(result: Result) -> dict[str, Any]:
    document = attrs.asdict(result, filter=lambda field, _: field.name != "figures")
    return {**document, "figures": _figures(result.figures)}


def _figures(figures: Mapping[str, Figure]) -> dict[str, Any]:
    return {
        name: {
            "label": figure.label,
            "unit": figure.unit,
            **(attrs.asdict(figure.spread) if figure.spread is not None else {}),
            "runs": list(figure.runs),
        }
        for name, figure in figures.items()
    }


def describe_environment() -> dict[str, Any]:
    """Return command, time, machine and versions for a report."""
    return {
        "command": sys.argv,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.platform()}",
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    """Return the processor's name if the system provides it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
