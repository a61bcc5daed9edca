"""Count of wrong API keys by address, so that guessing is slow."""

from __future__ import annotations

import math

MOST_A_MINUTE = 20
"""Wrong keys of an address in a minute, after which its wrong keys are answered late."""
_MINUTE = 60.0
_ADDRESSES = 4_096
"""Addresses that are remembered; the one that was first seen is forgotten first."""


class WrongKeys:
    """Counts wrong keys by address, in windows of a minute."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def record(self, address: str, now: float) -> int | None:
        """Record a wrong key.

        Args:
            now: Seconds, by any clock.

        Returns:
            Seconds until the address may try again, if it has sent too many; else None.
        """
        began, count = self._counts.get(address, (now, 0))
        if now >= began + _MINUTE:
            began, count = now, 0
            self._counts.pop(address, None)
        if address not in self._counts and len(self._counts) >= _ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (began, count + 1)
        return math.ceil(began + _MINUTE - now) if count >= MOST_A_MINUTE else None
