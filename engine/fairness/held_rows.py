"""Number of batch rows per client, which decides on preemption and resumption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class HeldRows:
    """Numbers of running rows by client.

    A client's name is its address, with `#` and its key behind it if it has one. Keys are not verified, so
    the rows of an address's clients together count first.

    Args:
        held: Clients with their numbers of rows; a client may occur several times.
    """

    def __init__(self, held: Iterable[tuple[str, int]]) -> None:
        self._of_addresses: Counter[str] = Counter()
        self._of_clients: Counter[str] = Counter()
        for client, rows in held:
            self._of_addresses[_address(client)] += rows
            self._of_clients[client] += rows

    def of(self, client: str) -> tuple[int, int]:
        """Return the rows of the client's address and of the client itself, as a sort key."""
        return self._of_addresses[_address(client)], self._of_clients[client]


def _address(client: str) -> str:
    return client.partition("#")[0]
