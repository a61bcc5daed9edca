"""The seconds between the tokens of an answer, for the histogram of inter-token latency."""

from __future__ import annotations

import time

from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.events.histogram import Histogram, HistogramSnapshot

BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2),
    *(0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 40.0),
)
"""Bounds in seconds: vLLM's, with finer ones below for small models and fewer above."""


class TokenIntervals:
    """Observes, at the end of a step, the seconds since each answer's token before.

    Several tokens of an answer in one step, such as accepted drafts, count once, as in vLLM: its client gets
    them together.
    """

    def __init__(self) -> None:
        self._histogram = Histogram(BOUNDS)
        self._advanced: dict[Sequence, None] = {}

    def add(self, sequence: Sequence) -> None:
        """Record that this step has read a token of the sequence."""
        self._advanced[sequence] = None

    def end_step(self) -> None:
        """Observe the intervals of the sequences with a token in this step."""
        if not self._advanced:
            return
        now = time.perf_counter()
        for sequence in self._advanced:
            metrics = sequence.metrics
            if metrics.last_token_at is not None:
                self._histogram.observe(now - metrics.last_token_at)
            metrics.last_token_at = now
        self._advanced.clear()

    def snapshot(self) -> HistogramSnapshot:
        return self._histogram.snapshot()
