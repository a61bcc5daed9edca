"""The memory that other programs leave, read at most a few times per second."""

from __future__ import annotations

import math
from collections.abc import Callable

MAX_AGE = 0.1
"""Seconds for which a reading is valid. It takes some 50 us, and bursts of requests cause many decisions."""


class MemoryReading:
    """The latest reading, renewed on request.

    Args:
        read: Function that returns the bytes that other programs leave; None if unknown.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._read_at = -math.inf
        self._available: int | None = None

    def available(self, now: float) -> int | None:
        """Return the bytes that other programs leave; None if unknown.

        Args:
            now: Present time, by `time.monotonic()`.
        """
        if now - self._read_at >= MAX_AGE:
            self._available, self._read_at = self._read(), now
        return self._available

    def expire(self) -> None:
        """Read anew at the next decision, since a model has freed memory."""
        self._read_at = -math.inf
