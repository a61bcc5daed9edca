"""Limits of requests and tokens a minute, as token buckets in memory."""

from __future__ import annotations

import math

MINUTE = 60.0
"""Seconds in which an empty bucket fills."""


class TokenBucket:
    """A bucket that holds a minute's allowance at most, and fills at a constant rate.

    Args:
        per_minute: Allowance of a minute, at least 1.
        now: Seconds, by any clock that never goes back; the bucket is full then.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._since = now

    def left(self, now: float) -> int:
        """Return the whole units that may be taken at once; 0 while the bucket is in debt."""
        return max(0, math.floor(self._filled(now) + 1e-9))

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until it holds an amount; more than a minute's allowance counts as that."""
        missing = min(amount, self.per_minute) - self._filled(now)
        return max(0.0, missing * MINUTE / self.per_minute)

    def take(self, amount: float, now: float) -> None:
        """Take an amount, which may leave a debt; a negative one is returned."""
        self._level = min(float(self.per_minute), self._filled(now) - amount)
        self._since = now

    def _filled(self, now: float) -> float:
        grown = max(0.0, now - self._since) * self.per_minute / MINUTE
        return min(float(self.per_minute), self._level + grown)
