"""Fair sharing among clients that cannot gain from using several names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from greenroom.engine.fairness.shares import Shares


class ClientShares:
    """Fair queueing among addresses, and among the clients of an address within its share.

    A client's name is its address, with `#` and its key behind it if it has one. Keys are not verified, so
    made-up keys must not yield more than the address's share.
    """

    def __init__(self) -> None:
        self._addresses = Shares()
        self._clients: dict[str, Shares] = {}

    @property
    def known_names(self) -> int:
        """Number of addresses and clients with state, because they wait or exceeded their share."""
        return len(self._addresses) + sum(map(len, self._clients.values()))

    def in_order(self, clients: Iterable[str], costs: Mapping[str, float] | None = None) -> Iterator[str]:
        """Yield clients in serving order.

        Args:
            clients: Waiting clients, at least one.
            costs: See `Shares.in_order`.
        """
        waiting = _by_address(clients)
        costs = costs or {}
        least = {name: min(costs.get(client, 0.0) for client in own) for name, own in waiting.items()}
        addresses = self._addresses.in_order(waiting, least)
        self._clients = {name: shares for name, shares in self._clients.items() if name in self._addresses}
        for address in addresses:
            yield from self._clients.setdefault(address, Shares()).in_order(waiting[address], costs)

    def charge(self, clients: Sequence[str], cost: float) -> None:
        """Charge clients for work that they share equally.

        Args:
            clients: Clients of the work, the chosen one first; a client may occur several times.
            cost: Cost of the work in any unit.
        """
        self._addresses.charge(list(map(_address, clients)), cost)
        for address, names in _by_address(clients).items():
            self._clients.setdefault(address, Shares()).charge(names, cost * len(names) / len(clients))


def _by_address(clients: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for client in clients:
        found.setdefault(_address(client), []).append(client)
    return found


def _address(client: str) -> str:
    return client.partition("#")[0]
