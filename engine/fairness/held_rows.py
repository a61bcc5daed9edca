"""How much of a batch each client holds: who has most gives way first, who has least goes on first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class HeldRows:
    """Rows that are computed, by client.

    A client is called by its address, and behind a `#` by its key, if it has one. Keys are not checked, so
    what counts first is what all clients of an address hold together.

    Args:
        held: Clients and their rows; one may stand there several times.
    """

    def __init__(self, held: Iterable[tuple[str, int]]) -> None:
        self._of_addresses: Counter[str] = Counter()
        self._of_clients: Counter[str] = Counter()
        for client, rows in held:
            self._of_addresses[_address(client)] += rows
            self._of_clients[client] += rows

    def of(self, client: str) -> tuple[int, int]:
        """Return the rows of a client's address and the client's own, which compare in that order."""
        return self._of_addresses[_address(client)], self._of_clients[client]


def _address(client: str) -> str:
    return client.partition("#")[0]
