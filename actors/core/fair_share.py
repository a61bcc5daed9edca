"""The share that each client may have of something that runs short."""

from __future__ import annotations

from collections import Counter

from greenroom.engine.resources.fair_queue import address_of

_KEPT_FOR_NEWCOMERS = 8  # Divisor of a pot that yields what a client alone leaves


def share_left(most: int, held: int, own: int) -> int:
    """Return the amount of a pot that a client may still take.

    Alone, it may take all but an eighth, which serves the next one who comes. Beside others nobody may hold
    more than what is then left free, hence at most half: two greedy clients get a third each, and the third
    third serves newcomers. Whoever holds too much keeps it, but gets nothing more.
    """
    if held == own:
        return most - most // _KEPT_FOR_NEWCOMERS - held
    return (most - held - own + 1) // 2


class Pot:
    """A number of places or bytes that clients share, each up to its share.

    A client is known by its checked key, or by its address: anybody may make up unchecked keys.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._held.total()

    def room(self, client: str, others_wait: bool = False) -> int:
        """Return the amount that a client may still take; at most 0 for nothing. `others_wait`: True if
        another client wants some of the pot and holds none yet.
        """
        own = self.held(client)
        return share_left(self._most, self.total + others_wait, own)

    def held(self, client: str) -> int:
        return self._held[address_of(client)]

    def take(self, client: str, amount: int = 1) -> None:
        """Charge a client, whether or not there is room."""
        self._held[address_of(client)] += amount

    def give_back(self, client: str, amount: int = 1) -> None:
        self._held[address_of(client)] -= amount
        self._held += Counter()  # drops who holds nothing
