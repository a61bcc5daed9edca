"""Histograms of durations: counts in fixed buckets, as Prometheus has them."""

from __future__ import annotations

from bisect import bisect_left

import attrs


@attrs.frozen
class HistogramSnapshot:
    """The observations of a histogram up to one moment: plain numbers, safe on any thread.

    Args:
        bounds: Inclusive upper bounds of the buckets, ascending.
        counts: Number of observations in each bucket, and at the end those above the last bound.
        total: Sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    def plus(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """Return the observations of both; the bounds must be the same."""
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return HistogramSnapshot(self.bounds, counts, self.total + other.total)


class Histogram:
    """A histogram that grows, confined to one thread.

    Args:
        bounds: Inclusive upper bounds of the buckets, ascending.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._total)
