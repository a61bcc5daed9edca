"""What a model keeps for requests to come, of several sorts: charged to its share together."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.memory.account import Share


class CachedParts:
    """Charges the sum of what several caches of a model hold."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._held: list[int] = []

    def new_part(self) -> Callable[[int], int]:
        """Return what charges one more cache: of the bytes that it wants, it returns how many there are."""
        self._held.append(0)
        index = len(self._held) - 1

        def charge(nbytes: int) -> int:
            others = sum(self._held) - self._held[index]
            self._held[index] = max(0, self._share.charge_cached(others + nbytes) - others)
            return self._held[index]

        return charge
