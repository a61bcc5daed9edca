"""Equal shares among clients, none of whom gains by calling itself otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from greenroom.engine.fairness.shares import Shares


class ClientShares:
    """Fair queueing over addresses, and over the clients of an address inside its share.

    A client is called by its address, and behind a `#` by its key, if it has one. Keys are not checked, so
    nobody gets more than the share of an address by making up keys.
    """

    def __init__(self) -> None:
        self._addresses = Shares()
        self._clients: dict[str, Shares] = {}

    @property
    def known_names(self) -> int:
        """How many addresses and clients are remembered, because they wait or had more than their share."""
        return len(self._addresses) + sum(map(len, self._clients.values()))

    def in_order(self, clients: Iterable[str], costs: Mapping[str, float] | None = None) -> Iterator[str]:
        """Yield clients, first the one whose turn it is.

        Args:
            clients: All that wait, at least one.
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
        """Charge clients for what they share equally.

        Args:
            clients: The first was chosen; one may stand there several times.
            cost: In any unit.
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
