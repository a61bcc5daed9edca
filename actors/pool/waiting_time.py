"""Estimates of waiting times from earlier requests."""

from __future__ import annotations

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
