"""A machine that is never faster nor slower, by whose figures engines under test decide."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.batch.shape import Shape
from greenroom.engine.scheduler.costs.cost_model import PrefillChunk, StepCosts

DECODE_MS = (2.0, 0.5, 0.001)
"""Of a pass over the weights, of a row, and of a cached token of one."""
PREFILL_MS = (0.3, 1e-4)
"""Of a token of a prompt, and of a pair of one and a token before it."""
COPY_MS = 1e-6
"""Of a byte: a gigabyte a second."""
_SAMPLES = 100
"""More than are needed anywhere before a cost counts as known."""


class FixedCosts(StepCosts):
    """Costs that are known from the beginning, whatever anything takes."""

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
    """A clock that goes on by the same time whenever it is read, whatever happens in between.

    Args:
        tick: Seconds.
    """

    tick: float = 0.001
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def _cost(coefficients: Sequence[float], counts: Sequence[float]) -> float:
    return sum(each * count for each, count in zip(coefficients, counts, strict=True))
