"""Fair sharing among clients that cannot gain from using several names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence


class Shares:
    """Fair queueing over names, by the virtual time of WF2Q+ (Bennett and Zhang, 1997).

    A name's total service is compared with the virtual time, which is the service of a name that always
    waited. A new or returning name starts there: it can neither catch up nor save up, and gains nothing from
    a new name. Names level with the virtual time are removed.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._now = 0.0
        self._waiting = 1

    def __len__(self) -> int:
        return len(self._served)

    def __contains__(self, name: str) -> bool:
        return name in self._served

    def in_order(self, names: Iterable[str], costs: Mapping[str, float] | None = None) -> list[str]:
        """Return names by service received, least first; equal ones by their last turn, oldest first.

        Args:
            names: Waiting names, at least one.
            costs: Cost of each name's next turn, where known. Order is then by service after that turn, so
                that a short turn does not wait for a round of long ones.
        """
        costs = costs or {}
        waiting = dict.fromkeys(names)
        self._waiting = len(waiting)
        known = {
            name: served for name, served in self._served.items() if served > self._now or name in waiting
        }
        self._served = {**dict.fromkeys(waiting, self._now), **known}
        self._turns = {name: turn for name, turn in self._turns.items() if name in self._served}

        def tag(name: str) -> tuple[float, int]:
            return self._served[name] + costs.get(name, 0.0), self._turns.get(name, 0)

        return sorted(waiting, key=tag)

    def charge(self, names: Sequence[str], cost: float) -> None:
        """Charge names for work that they share equally; the first was chosen."""
        self._turn += 1
        begun = max(self._now, self._served.get(names[0], self._now))
        for name in names:
            self._served[name] = self._served.get(name, begun) + cost / len(names)
            self._turns[name] = self._turn
        self._now = begun + cost / self._waiting


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


def _by_address(clients: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for client in clients:
        found.setdefault(_address(client), []).append(client)
    return found


def _address(client: str) -> str:
    return client.partition("#")[0]
