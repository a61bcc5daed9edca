"""The state of memory, read at most a few times per second, since the event loop waits meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import attrs

from greenroom.actors.pool.planning.pool_events import MemoryRead

MIN_AGE = 0.1
"""Least seconds for which a reading is valid, since bursts of requests cause many decisions."""

SHARE = 100
"""Factor: a reading is valid for so many times its duration, and so takes at most 1 % of the loop's time."""


class MemoryReading:
    """The latest reading, renewed on request.

    Args:
        read: Function that returns the bytes that other programs leave; None if unknown.
        held: Function that returns the bytes that unloaded models have left, at once.
        clock: Clock in seconds that measures readings.
    """

    def __init__(
        self,
        read: Callable[[], int | None],
        held: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._read = read
        self._held = held
        self._clock = clock
        self._expires_at = -math.inf
        self._available: int | None = None

    def latest(self, now: float) -> MemoryRead:
        """Return the state of memory.

        Args:
            now: Present time, by `time.monotonic()`.
        """
        if now >= self._expires_at:
            before = self._clock()
            self._available = self._read()
            self._expires_at = now + max(MIN_AGE, SHARE * (self._clock() - before))
        return MemoryRead(self._available, now, self._held())

    def without_held(self, now: float) -> MemoryRead:
        """Return the state that memory will have once the held memory is released."""
        read = self.latest(now)
        available = None if read.available is None else read.available + read.held
        return attrs.evolve(read, available=available, held=0)

    def expire(self) -> None:
        """Read anew at the next decision, since memory has been freed."""
        self._expires_at = -math.inf
