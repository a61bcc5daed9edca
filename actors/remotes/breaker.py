"""A circuit breaker: the state of a remote, from the ends of its requests."""

from __future__ import annotations

from collections import deque
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]

FAILURES = 3
"""Failures within `WINDOW` after which nothing more is sent."""
WINDOW = 30.0
"""Seconds in which failures count together."""
PAUSES = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds until one request may try again, by the number of tries in a row that failed."""


class Breaker:
    """Decides whether a remote is asked. Times are seconds by any clock that only advances.

    While it is open nothing is sent. After a pause one request may try (half open): its success closes the
    breaker, its failure opens it for longer. A request that ends with neither gives the try to another.
    """

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self._until: float | None = None
        self._opened = 0
        self._probe: object = None
        self.reason = ""

    def state(self, now: float) -> BreakerState:
        if self._until is None:
            return "closed"
        return "open" if now < self._until else "half_open"

    def may_begin(self, now: float) -> bool:
        """Return whether a request could begin now, and take nothing."""
        return self._until is None or (now >= self._until and self._probe is None)

    def begin(self, request: object, now: float) -> bool:
        """Return whether a request may be sent; in the half open state that is one at a time."""
        if not self.may_begin(now):
            return False
        if self._until is not None:
            self._probe = request
        return True

    def succeed(self, request: object) -> None:
        """Record that the remote has answered; late answers from before it opened do not count."""
        if self._until is None:
            self._failures.clear()
        elif request is self._probe:
            self._until, self._probe, self._opened, self.reason = None, None, 0, ""
            self._failures.clear()

    def fail(self, request: object, now: float, reason: str) -> None:
        """Record a failure that is the remote's own."""
        self.reason = reason
        if self._until is not None:
            if request is self._probe:
                self._open(now)
            return
        self._failures.append(now)
        if len(self._failures) == FAILURES and now - self._failures[0] <= WINDOW:
            self._open(now)

    def leave(self, request: object) -> None:
        """Record the end of a request of which nothing was learnt, such as a cancelled one."""
        if request is self._probe:
            self._probe = None

    def seconds_left(self, now: float) -> float:
        """Return the seconds until a request may try; 0 if one may."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def _open(self, now: float) -> None:
        self._until = now + PAUSES[min(self._opened, len(PAUSES) - 1)]
        self._opened += 1
        self._probe = None
        self._failures.clear()
