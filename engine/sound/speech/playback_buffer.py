"""Estimate of the audio in the client's playback buffer."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_HOLD = 0.1
"""Longest time in seconds that samples are held back: those held at the end must still be encoded then."""
_HELD_OF_LEAD = 0.25


class PlaybackBuffer:
    """Decides when to send the next samples; every delivery takes the GIL from the model.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._last = 0.0
        self._given = 0.0

    @property
    def is_due(self) -> bool:
        """True if samples should be sent now: the first ones, and those that the playback will soon need."""
        if self._began is None:
            return True
        now = self._clock()
        lead = self._given - (now - self._began)
        return now - self._last >= min(LONGEST_HOLD, lead * _HELD_OF_LEAD)

    def give(self, seconds: float) -> None:
        """Record that `seconds` of audio were sent."""
        self._last = self._clock()
        if self._began is None:
            self._began = self._last
        self._given += seconds
