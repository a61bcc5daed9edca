"""Fair queue of requests: clients get equal shares of the time, and none of their requests starves."""

from __future__ import annotations

import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar


class ClientRequest(Hashable, Protocol):
    @property
    def client(self) -> str:
        """Address of the client, with `#` and its key behind it if it has one."""


T = TypeVar("T", bound=ClientRequest)


class FairQueue(Generic[T]):
    """Queue of requests with equal shares among clients.

    Each client's turns alternate between its first request and its cheapest: neither a short request behind
    long ones nor a long one behind a stream of short ones starves.

    A prompt yields nothing until all of it is prefilled: so prompts keep their places, and the cheapest is
    the one with the least remaining. Requests whose results are streamed must all progress: a served one
    moves behind its client's others, and the cheapest is the one that has had the least.

    Args:
        remaining: Function that returns a prompt's remaining cost; None if results are streamed.
        expected: Function that returns the cost of a streamed request's next turn, where turns differ.
        conversation: Function that returns the key of a request's conversation, of which only the first
            request counts.
        order: Function that returns a request's place in the order of arrival; by default, `add` appends.
    """

    def __init__(
        self,
        *,
        remaining: Callable[[T], float] | None = None,
        expected: Callable[[T], float] | None = None,
        conversation: Callable[[T], str] | None = None,
        order: Callable[[T], Any] | None = None,
    ) -> None:
        self._remaining = remaining
        self._expected = expected
        self._conversation = conversation
        self._order = order
        self._requests: list[T] = []
        self._had: dict[T, float] = {}
        self._turns: dict[str, int] = {}
        self._shares = ClientShares()

    @property
    def known_names(self) -> int:
        """Number of addresses and clients with state, because they wait or exceeded their share."""
        return self._shares.known_names

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[T]:
        return iter(self._requests)

    def add(self, request: T) -> None:
        """Add a request.

        The first one in an empty queue resets all charges. Virtual time advances only while a client is
        served: the client of the last large request would otherwise stay behind others after any idle time.
        """
        if not self._requests:
            self._shares = ClientShares()
            self._turns = {}
        if self._order is None:
            self._requests.append(request)
        else:
            insort(self._requests, request, key=self._order)

    def remove(self, request: T) -> None:
        if request in self._requests:
            self._requests.remove(request)
            self._had.pop(request, None)
            if request.client in self._turns and all(each.client != request.client for each in self):
                del self._turns[request.client]

    def clear(self) -> list[T]:
        requests, self._requests = self._requests, []
        self._had, self._turns = {}, {}
        return requests

    def choose(self, among: Iterable[T] | None = None) -> T | None:
        """Return the request to serve next; None if there is none. `among`: requests of the queue that can be
        served, in their order; None for all.
        """
        return next(self.in_turn(among), None)

    def in_turn(self, among: Iterable[T] | None = None) -> Iterator[T]:
        """Yield the requests in serving order. `among`: requests of the queue that can be served, in their
        order; None for all.
        """
        requests: dict[str, list[T]] = {}
        for request in self._requests if among is None else among:
            requests.setdefault(request.client, []).append(request)
        if not requests:
            return
        costs: dict[str, float] | None = None
        if self._expected is not None:
            requests = {client: self._in_turn_of_client(client, own) for client, own in requests.items()}
            costs = {client: self._expected(own[0]) for client, own in requests.items()}
        for client in self._shares.in_order(requests, costs):
            own = requests[client]
            yield from own if costs is not None else self._in_turn_of_client(client, own)

    def charge(self, requests: Sequence[T], cost: float) -> None:
        """Charge the clients of requests that were served together.

        Args:
            requests: Requests that share the cost, the chosen one first; they may have left the queue.
            cost: Cost of the complete turn, in any unit that all charges share. A partial charge would put
                newcomers behind the rest of the turn.
        """
        client = requests[0].client
        if any(request.client == client for request in self):
            self._turns[client] = self._turns.get(client, 0) + 1
        self._shares.charge([request.client for request in requests], cost)
        if self._remaining is None:
            for request in requests:
                if request in self._requests:
                    self._requests.remove(request)
                    self._requests.append(request)
                    self._had[request] = self._had.get(request, 0.0) + cost

    def _in_turn_of_client(self, client: str, requests: list[T]) -> list[T]:
        if self._conversation is not None:
            first: dict[str, T] = {}
            for request in requests:
                first.setdefault(self._conversation(request), request)
            requests = list(first.values())
        return sorted(requests, key=self._cost) if self._turns.get(client, 0) % 2 else requests

    def _cost(self, request: T) -> float:
        if self._remaining is not None:
            return self._remaining(request)
        had = self._had.get(request, 0.0)
        return had if self._expected is None else had + self._expected(request)


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
        """Yield clients in serving order."""
        waiting = _by_address(clients)
        costs = costs or {}
        least = {name: min(costs.get(client, 0.0) for client in own) for name, own in waiting.items()}
        addresses = self._addresses.in_order(waiting, least)
        self._clients = {name: shares for name, shares in self._clients.items() if name in self._addresses}
        for address in addresses:
            yield from self._clients.setdefault(address, Shares()).in_order(waiting[address], costs)

    def charge(self, clients: Sequence[str], cost: float) -> None:
        """Charge clients for work that they share equally. `clients`: clients of the work, the chosen one
        first; a client may occur several times.
        """
        self._addresses.charge(list(map(address_of, clients)), cost)
        for address, names in _by_address(clients).items():
            self._clients.setdefault(address, Shares()).charge(names, cost * len(names) / len(clients))


class Holdings:
    """Amounts that clients hold of something they share, such as the rows of a batch.

    A client's name is its address, with `#` and its key behind it if it has one. Keys are not verified, so
    what an address's clients hold together counts first.

    Args:
        held: Clients with their amounts; a client may occur several times.
    """

    def __init__(self, held: Iterable[tuple[str, int]]) -> None:
        self._of_addresses: Counter[str] = Counter()
        self._of_clients: Counter[str] = Counter()
        for client, amount in held:
            self._of_addresses[address_of(client)] += amount
            self._of_clients[client] += amount

    def of(self, client: str) -> tuple[int, int]:
        """Return the amounts of the client's address and of the client itself, as a sort key."""
        return self._of_addresses[address_of(client)], self._of_clients[client]

    def lead(self, rich: str, poor: str) -> int:
        """Return by how much a client, or its address if they have different ones, exceeds another."""
        (rich_address, rich_client), (poor_address, poor_client) = self.of(rich), self.of(poor)
        shares_address = address_of(rich) == address_of(poor)
        return rich_client - poor_client if shares_address else rich_address - poor_address

    def allow(self, client: str, more: int, capacity: int) -> bool:
        """Return whether a client may hold that much more without exceeding its fair share of a capacity.

        Each share is equal, except that what a client does not want is left to the others. So a client may
        hold all while it is alone, and at most half beside another that wants as much.
        """
        address = address_of(client)
        wanted = self._of_addresses | Counter({address: self._of_addresses[address] + more})
        own = self._of_clients[client] + more
        siblings = {name: held for name, held in self._of_clients.items() if address_of(name) == address}
        room = min(wanted[address], _equal_share(wanted.values(), capacity))
        return own <= _equal_share({**siblings, client: own}.values(), room)


def _equal_share(wanted: Iterable[int], capacity: int) -> int:
    """Return the most that everybody may have of a capacity, which those who want less leave to the rest."""
    least_first = sorted(wanted)
    for served, amount in enumerate(least_first):
        share = capacity // (len(least_first) - served)
        if amount > share:
            return share
        capacity -= amount
    return least_first[-1] if least_first else capacity


def _by_address(clients: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for client in clients:
        found.setdefault(address_of(client), []).append(client)
    return found


def address_of(client: str) -> str:
    """Return the address in a client's name; the whole name for one with a checked key."""
    return client.partition("#")[0]


BUDGET_SECONDS = 0.05
"""Budget of a turn in seconds; a request pauses at the next token, layer or piece of audio after it."""
_PATIENCE = 0.02


class TimeBudget:
    """The time that is left of a request's turn.

    Args:
        clock: Clock in seconds, from any origin.

    Attributes:
        is_alone: True if no other request waits.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.is_alone = True
        self._ends = 0.0

    def begin(self) -> None:
        self._ends = self._clock() + BUDGET_SECONDS

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._ends

    @property
    def patience(self) -> float:
        """Time limit for waiting for samples that are not decoded yet, in seconds."""
        return _PATIENCE if self.is_alone else _PATIENCE / 10
