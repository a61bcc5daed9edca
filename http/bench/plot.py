"""Results as one image with a panel per scenario. Needs matplotlib, from the extra `plot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.http.bench.figures import Figure, Result
from greenroom.http.bench.load_client import BenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes", Sequence[Result]], None]
_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red")


def is_drawable() -> bool:
    """Return whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(results: Sequence[Result], title: str, file: Path) -> None:
    """Write the results as a PNG file.

    Raises:
        BenchError: The file cannot be written.
    """
    from matplotlib.figure import Figure as Picture

    kinds = dict.fromkeys(result.scenario for result in results)
    picture = Picture(figsize=(9, 0.5 + 3.6 * len(kinds)), layout="constrained")
    picture.suptitle(title, fontsize="medium")
    panels = picture.subplots(len(kinds), squeeze=False)[:, 0]
    for kind, axes in zip(kinds, panels, strict=True):
        _PANELS[kind](axes, [result for result in results if result.scenario == kind])
    try:
        picture.savefig(file, format="png", dpi=120)
    except OSError as problem:
        raise BenchError(f"{file}: {problem.strerror or problem}") from problem


def _bars(axes: Axes, results: Sequence[Result], shown: Mapping[str, str]) -> None:
    """Draw medians with extremes, as one group of bars per metric."""
    bars = [
        (f"{label}\n{_label(result, results)}", figure, color)
        for (name, label), color in zip(shown.items(), _COLORS, strict=False)
        for result in results
        if (figure := result.figures.get(name)) is not None
    ]
    for position, (_, figure, color) in enumerate(bars):
        _bar(axes, position, figure, color)
    axes.set_xticks(range(len(bars)), [label for label, _, _ in bars], fontsize="x-small")


def _bar(axes: Axes, position: int, figure: Figure, color: str) -> None:
    spread = figure.spread
    if spread is None:
        return
    reach = ([spread.median - spread.low], [spread.high - spread.median])
    axes.bar([position], [spread.median], yerr=reach, capsize=4, width=0.6, color=color, alpha=0.8)
    axes.annotate(
        f"{spread.median:.{figure.digits}f}",
        (position, spread.high),
        ha="center",
        va="bottom",
        fontsize="small",
    )


def _streams(axes: Axes, results: Sequence[Result]) -> None:
    shown = {"of_batch_generator": "of BatchGenerator", "of_bare_loop": "of the bare loop"}
    if not any(name in result.figures for result in results for name in shown):
        _speeds(axes, results)
        return
    _bars(axes, results, shown)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(
        title="Streams: speed over mlx-lm's bare loops", ylabel="ratio, median and extremes", ylim=(0, None)
    )


def _speeds(axes: Axes, results: Sequence[Result]) -> None:
    _bars(axes, results, {"rate": "tokens/s"})
    axes.set(title="Streams: speed", ylabel="tokens/s, median and extremes", ylim=(0, None))


def _mixed(axes: Axes, results: Sequence[Result]) -> None:
    _bars(
        axes, results, {"of_greedy": "mixed over greedy", "of_batch_generator": "mixed over BatchGenerator"}
    )
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(
        title="Requests with parameters of their own", ylabel="ratio, median and extremes", ylim=(0, None)
    )


def _long_prompt(axes: Axes, results: Sequence[Result]) -> None:
    """Draw all inter-token latencies of the streams, in the last run of each server."""
    for result, color in zip(results, _COLORS, strict=False):
        series = next((series for series in reversed(result.series) if series), None)
        if series is None:
            continue
        label = f"between tokens, {_label(result, results)}"
        axes.scatter(series["seconds"], series["gaps"], s=4, color=color, alpha=0.5, label=label)
        for mark, style in zip(series["marks"], ("--", ":"), strict=True):
            axes.axvline(mark, color=color, linestyle=style, linewidth=1)
    axes.axvline(0, color="black", linewidth=1)
    axes.set(
        title="A long prompt arrives (line), has its first token (dashed) and its last (dotted)",
        xlabel="seconds from its arrival",
        ylabel="ms between tokens",
        yscale="log",
    )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


def _label(result: Result, results: Sequence[Result]) -> str:
    several = len({other.server for other in results}) > 1
    return f"{result.case}\n{result.server}" if several else result.case


_PANELS: Mapping[str, Panel] = {
    "streams": _streams,
    "mixed": _mixed,
    "long-prompt": _long_prompt,
}
