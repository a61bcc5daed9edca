"""How often a model may fail before it is left alone for a while (Erlang's restart intensity)."""

from __future__ import annotations

from collections import deque


class RestartIntensity:
    """At most `limit` failures in `period` seconds.

    Args:
        limit: With this many failures inside one period, the model is not started again.
    """

    def __init__(self, limit: int = 3, period: float = 60.0) -> None:
        self._limit = limit
        self._period = period
        self._failures: deque[float] = deque(maxlen=limit)

    def record_failure(self, now: float) -> None:
        """Count a failure."""
        self._failures.append(now)

    def seconds_left(self, now: float) -> float:
        """Return for how long the model is to be left alone; 0 if it may be started."""
        if len(self._failures) < self._limit:
            return 0.0
        return max(0.0, self._failures[0] + self._period - now)
