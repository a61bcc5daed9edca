"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from greenroom.http.bench.figures import Figures, Percentiles, Spread

LOOP_NAMES = {"batch_generator": "mlx-lm's\nBatchGen.", "bare_loop": "the bare\nloop"}


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
    table = Table(
        title=f"{model} at {target}",
        caption=_caption(results),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    loops = [name for name in LOOP_NAMES if any(name in result.ratio for result in results)]
    table.add_column("", min_width=8)
    headings = ["tokens/s", "first\ntoken, ms", "between\ntokens, ms"]
    headings += [f"of {LOOP_NAMES[name]}" for name in loops]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        cells = [result.scenario, _spread(result.rate, 0), _ranks(result.first), _ranks(result.gap)]
        cells += [_spread(result.ratio[name], 2) if name in result.ratio else "" for name in loops]
        table.add_row(*cells)
    console.print(table)
    for error in sorted({error for result in results for error in result.errors}):
        console.print(f"failed: {error}", style="red", markup=False)


def _caption(results: Sequence[Figures]) -> str:
    runs = max(result.runs for result in results)
    client = max(result.client_cpu for result in results)
    prompts = max(result.prompt_tokens for result in results)
    sentences = [
        f"Median and (lowest-highest) of {runs} runs with new prompts of {prompts:.0f} tokens; "
        "times are p50 and (p90, p99).",
        f"The load generator took up to {client:.0f} µs of processor time per token.",
    ]
    beyond = [f"{r.cpu_beyond['bare_loop']:.0f} µs at {r.scenario}" for r in results if r.cpu_beyond]
    if beyond:
        sentences.append(f"Processor time per token beyond the bare loop's: {', '.join(beyond)}.")
    return " ".join(sentences)


def _spread(spread: Spread, digits: int) -> str:
    return f"{spread.median:.{digits}f}\n({spread.low:.{digits}f}-{spread.high:.{digits}f})"


def _ranks(ranks: Percentiles | None) -> str:
    return "" if ranks is None else f"{_short(ranks.p50)}\n({_short(ranks.p90)}, {_short(ranks.p99)})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
