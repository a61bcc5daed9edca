"""Estimates of waiting times from earlier requests."""

from __future__ import annotations

import math

_WEIGHT = 0.2
_MIN_PROGRESS = 0.05


class WaitingTime:
    """The estimator of a model's waiting times.

    Args:
        slots: Number of answers generated at once.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean: float | None = None

    def observe(self, seconds: float) -> None:
        """Update the mean time for which a lease is held."""
        mean = seconds if self._mean is None else self._mean
        self._mean = mean + _WEIGHT * (seconds - mean)

    @property
    def mean(self) -> float | None:
        """Mean time in seconds for which a lease is held; None if unknown."""
        return self._mean

    def for_slots(self, wanted: int) -> int | None:
        """Return the estimated milliseconds until `wanted` slots are free; None if unknown."""
        if self._mean is None:
            return None
        return round(1000 * self._mean * wanted / self._slots)

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
