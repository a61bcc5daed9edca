"""Time budgets of requests that take turns on a device."""

from __future__ import annotations

import time
from collections.abc import Callable

BUDGET_SECONDS = 0.05
"""Budget of a turn in seconds; a request pauses at the next token, layer or piece of audio after it."""
_PATIENCE = 0.02


class TimeBudget:
    """The time that is left of a request's turn.

    Args:
        clock: Clock in seconds, from any origin.

    Attributes:
        is_alone: True if no other request waits.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.is_alone = True
        self._ends = 0.0

    def begin(self) -> None:
        self._ends = self._clock() + BUDGET_SECONDS

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._ends

    @property
    def patience(self) -> float:
        """Time limit for waiting for samples that are not decoded yet, in seconds."""
        return _PATIENCE if self.is_alone else _PATIENCE / 10
