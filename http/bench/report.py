"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from greenroom.http.bench.figures import Figures, Percentiles, Spread

LOOP_NAMES = {"batch_generator": "BatchGenerator", "bare_loop": "bare loop"}


def as_json(results: Sequence[Figures], target: str, model: str) -> dict[str, Any]:
    """Everything that was measured, with machine, versions and command."""
    return {
        "target": target,
        "model": model,
        "command": sys.argv,
        "machine": f"{platform.platform()}, {platform.processor() or platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in ("greenroom", "mlx", "mlx-lm") if (found := _version(name))},
        "results": [attrs.asdict(result) for result in results],
    }


def print_table(results: Sequence[Figures], target: str, model: str, console: Console) -> None:
    """One row for each scenario, narrow enough for 80 columns."""
    table = Table(title=f"{model} at {target}", caption=_caption(results), show_lines=True)
    loops = [name for name in LOOP_NAMES if any(name in result.ratio for result in results)]
    headings = ["", "tokens/s", "first token\nms", "between\ntokens, ms"]
    headings += [f"of the\n{LOOP_NAMES[name]}" for name in loops]
    headings += ["CPU beyond\nµs/token"] if loops else []
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        cells = [result.scenario, _spread(result.rate, 0), _ranks(result.first), _ranks(result.gap)]
        cells += [_spread(result.ratio[name], 2) if name in result.ratio else "" for name in loops]
        cells += [f"{result.cpu_beyond['bare_loop']:.0f}" if result.cpu_beyond else ""] if loops else []
        table.add_row(*cells)
    console.print(table)
    for error in sorted({error for result in results for error in result.errors}):
        console.print(f"failed: {error}", style="red", markup=False)


def _caption(results: Sequence[Figures]) -> str:
    runs = max(result.runs for result in results)
    client = max(result.client_cpu for result in results)
    return (
        f"Median and (lowest to highest) of {runs} runs with new prompts; times are p50 and (p90, p99). "
        f"The load generator took up to {client:.0f} µs of processor time per token."
    )


def _spread(spread: Spread, digits: int) -> str:
    return f"{spread.median:.{digits}f}\n({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _ranks(ranks: Percentiles | None) -> str:
    return "" if ranks is None else f"{ranks.p50:.1f}\n({ranks.p90:.1f}, {ranks.p99:.1f})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
