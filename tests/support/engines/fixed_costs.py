"""Fixed compute costs, so that decisions of engines under test do not depend on the machine's speed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.text.batch import Shape
from greenroom.engine.text.scheduler.step_costs import PrefillChunk, StepCosts

DECODE_MS = (2.0, 0.5, 0.001)
"""Milliseconds of a decode step: per pass over the weights, per row, and per cached token of a row."""
PREFILL_MS = (0.3, 1e-4)
"""Milliseconds of prefill: per prompt token, and per pair of a token and one before it."""
COPY_MS = 1e-6
"""Milliseconds to copy a byte, at one gigabyte a second."""
_SAMPLES = 100
"""Sample count that makes every cost count as known."""


class FixedCosts(StepCosts):
    """A cost model with constant costs, known from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.decode.observe((1, 8, 800), _cost(DECODE_MS, (1, 8, 800)))
        self.prefill.observe((100, 5000), _cost(PREFILL_MS, (100, 5000)))
        self.copy.observe((1e6,), 1e6 * COPY_MS)
        for cost in (self.decode, self.prefill, self.copy):
            cost.samples = _SAMPLES

    def observe(self, batches: Sequence[Shape], chunks: Sequence[PrefillChunk], milliseconds: float) -> None:
        """Learn nothing."""

    def observe_copy(self, copied: int, milliseconds: float) -> None:
        """Learn nothing."""


@attrs.define
class CountedClock:
    """A clock that advances by a constant time at each reading.

    Args:
        tick: Advance in seconds.
    """

    tick: float = 0.001
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def _cost(coefficients: Sequence[float], counts: Sequence[float]) -> float:
    return sum(each * count for each, count in zip(coefficients, counts, strict=True))
