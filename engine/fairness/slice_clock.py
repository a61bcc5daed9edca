"""How long a request may compute before others have their turn."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE_SECONDS = 0.05
"""After which a request pauses, at the next token, layer or piece of sound."""
_PATIENCE = 0.02


class SliceClock:
    """The slice of time that a request computes in.

    Args:
        clock: Seconds, from any origin.

    Attributes:
        is_alone: No other request waits.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.is_alone = True
        self._ends = 0.0

    def begin(self) -> None:
        """Begin a slice."""
        self._ends = self._clock() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the slice has ended."""
        return self._clock() >= self._ends

    @property
    def patience(self) -> float:
        """Seconds that may be spent on waiting for samples that are not decoded yet."""
        return _PATIENCE if self.is_alone else _PATIENCE / 10
