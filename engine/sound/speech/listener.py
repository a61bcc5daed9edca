"""How far ahead of whoever listens a text is spoken."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_HOLD = 0.1
"""Seconds that samples wait for more at most: what is held at the end is encoded behind it."""
_HELD_OF_LEAD = 0.25


class ListenerLead:
    """Tells when the next samples are due; handing them over takes the interpreter from the model each time.

    Args:
        clock: Seconds that only rise.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._last = 0.0
        self._given = 0.0

    @property
    def is_due(self) -> bool:
        """Whether samples are handed over now: the first, and those that will soon be wanted."""
        if self._began is None:
            return True
        now = self._clock()
        lead = self._given - (now - self._began)
        return now - self._last >= min(LONGEST_HOLD, lead * _HELD_OF_LEAD)

    def give(self, seconds: float) -> None:
        """Note that so many seconds of sound were handed over."""
        self._last = self._clock()
        if self._began is None:
            self._began = self._last
        self._given += seconds
