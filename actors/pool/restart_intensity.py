"""Limit of a model's failures before it is not restarted for a while (Erlang's restart intensity)."""

from __future__ import annotations

from collections import deque


class RestartIntensity:
    """The limit of failures within a period.

    Args:
        limit: Number of failures within one period after which the model is not restarted.
        period: Length of the period in seconds.
    """

    def __init__(self, limit: int = 3, period: float = 60.0) -> None:
        self._limit = limit
        self._period = period
        self._failures: deque[float] = deque(maxlen=limit)

    def record_failure(self, now: float) -> None:
        """Record a failure at the time `now`, in seconds."""
        self._failures.append(now)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the model may be restarted; 0 if it may be now."""
        if len(self._failures) < self._limit:
            return 0.0
        return max(0.0, self._failures[0] + self._period - now)
