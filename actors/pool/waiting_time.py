"""How long a waiting request will probably wait, from what was seen before."""

from __future__ import annotations

_WEIGHT = 0.2
_MIN_PROGRESS = 0.05


class WaitingTime:
    """Estimates for one model.

    Args:
        slots: Answers that are generated side by side.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean: float | None = None

    def observe(self, seconds: float) -> None:
        """Learn from a slot that was held for so long."""
        mean = seconds if self._mean is None else self._mean
        self._mean = mean + _WEIGHT * (seconds - mean)

    def for_slots(self, wanted: int) -> int | None:
        """Return the milliseconds until so many slots have come free, if known."""
        if self._mean is None:
            return None
        return round(1000 * self._mean * wanted / self._slots)

    @staticmethod
    def for_load(elapsed: float, progress: float) -> int | None:
        """Return the milliseconds left of a load that took `elapsed` seconds for the fraction `progress`."""
        if progress < _MIN_PROGRESS:
            return None
        return round(1000 * elapsed * (1 - progress) / progress)
