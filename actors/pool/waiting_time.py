"""Estimates of waiting times from earlier requests."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace

_REMEMBERED = 32
"""Latest requests from which times are estimated."""
_MIN_PROGRESS = 0.05


class WaitingTime:
    """The estimator of a model's waiting times, from the times that earlier requests held their slots.

    Args:
        slots: Number of answers generated at once.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._per_token: deque[float] = deque(maxlen=_REMEMBERED)

    def observe(self, seconds: float, tokens: int | None = None) -> None:
        """Record the time for which a request held its slots.

        Args:
            tokens: Most tokens that it wanted; None if it set no limit.
        """
        self._seconds.append(seconds)
        if tokens:
            self._per_token.append(seconds / tokens)

    def rest(self, elapsed: float, tokens: int | None = None) -> float | None:
        """Return the estimated seconds that a request holds its slots further; None if unknown.

        That is the median of those that took longer. One that takes longer than all is expected to take as
        long again.
        """
        known = [each * tokens for each in self._per_token] if tokens and self._per_token else self._seconds
        longer = sorted(whole - elapsed for whole in known if whole > elapsed)
        if longer:
            return longer[len(longer) // 2]
        return elapsed if known else None

    def of_waiting(
        self, running: Iterable[tuple[float, int | None]], waiting: Sequence[tuple[int, int | None]]
    ) -> list[int | None]:
        """Return the estimated milliseconds until each waiting request begins; None where unknown.

        Args:
            running: For each slot in use, the seconds so far and the most tokens of its request.
            waiting: Slots and most tokens of the requests that wait, in their order.
        """
        rests = [self.rest(*each) for each in running]
        ends = [rest for rest in rests if rest is not None]
        if len(ends) < len(rests) or not self._seconds:
            return [None] * len(waiting)
        ends += [0.0] * (self._slots - len(ends))
        heapify(ends)
        begins: list[int | None] = []
        for slots, tokens in waiting:
            begins.append(round(1000 * ends[0]))
            whole = self.rest(0.0, tokens) or 0.0
            for _ in range(slots):
                heapreplace(ends, ends[0] + whole)
        return begins

    @staticmethod
    def for_load(elapsed: float, progress: float) -> int | None:
        """Return the milliseconds left of a load that is at `progress` after `elapsed` seconds, if known."""
        if progress < _MIN_PROGRESS:
            return None
        return round(1000 * elapsed * (1 - progress) / progress)


RETRY_UNKNOWN = 2
"""Seconds after which a client retries if no estimate is known."""
MAX_RETRY = 60
"""Longest time in seconds; official clients do not wait longer than two minutes before they retry."""


def seconds_until_retry(eta_ms: int | None) -> int:
    """Return the seconds of a `Retry-After` header, from the estimated milliseconds if these are known."""
    return RETRY_UNKNOWN if eta_ms is None else min(max(1, math.ceil(eta_ms / 1000)), MAX_RETRY)
