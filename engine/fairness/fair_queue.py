"""Fair queue of requests: clients get equal shares of the time, and none of their requests starves."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from greenroom.engine.fairness.client_shares import ClientShares


class ClientRequest(Hashable, Protocol):
    """A request that names its client."""

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
        """Remove a request if it is in the queue."""
        if request in self._requests:
            self._requests.remove(request)
            self._had.pop(request, None)
            if request.client in self._turns and all(each.client != request.client for each in self):
                del self._turns[request.client]

    def clear(self) -> list[T]:
        """Remove and return all requests in order."""
        requests, self._requests = self._requests, []
        self._had, self._turns = {}, {}
        return requests

    def choose(self, among: Iterable[T] | None = None) -> T | None:
        """Return the request to serve next; None if there is none.

        Args:
            among: Requests of the queue that can be served, in their order; None for all.
        """
        return next(self.in_turn(among), None)

    def in_turn(self, among: Iterable[T] | None = None) -> Iterator[T]:
        """Yield the requests in serving order.

        Args:
            among: Requests of the queue that can be served, in their order; None for all.
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
