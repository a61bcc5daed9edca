"""How long a waiting request will probably wait, from what was seen before."""

from __future__ import annotations

_WEIGHT = 0.2
_EARLIEST = 0.05


class WaitingTime:
    """Estimates for one model.

    Args:
        slots: Requests that are served side by side.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._held: float | None = None

    def observe(self, seconds: float) -> None:
        """A slot was held for that long."""
        self._held = seconds if self._held is None else self._held + _WEIGHT * (seconds - self._held)

    def for_slot(self, position: int) -> int | None:
        """Milliseconds until the request at `position` (0 is next) gets a slot, if that can be told."""
        if self._held is None:
            return None
        return round(1000 * self._held * (position + 1) / self._slots)

    @staticmethod
    def for_load(elapsed: float, progress: float) -> int | None:
        """Milliseconds until a load is done that took `elapsed` seconds for the fraction `progress`."""
        if progress < _EARLIEST:
            return None
        return round(1000 * elapsed * (1 - progress) / progress)
