"""Fair queue of requests whose results are streamed, such as speech and transcription."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from greenroom.engine.fairness.client_shares import ClientShares

T = TypeVar("T", bound=Hashable)


class FairTurns(Generic[T]):
    """Fair queue of requests with equal shares among clients.

    Unlike prompts (`FairQueue`), which yield nothing until they are complete, streamed requests must all
    progress. So each client's slices alternate between the request that has waited longest and the one with
    the least cost so far: a late short request need not wait for a slice of every long one.

    Args:
        expected: Function that returns the cost of a request's next slice, if slices differ, in the unit of
            `charge`.
    """

    def __init__(self, expected: Callable[[T], float] = lambda request: 0.0) -> None:
        self._expected = expected
        self._clients: dict[T, str] = {}
        self._had: dict[T, float] = {}
        self._turns: dict[str, int] = {}
        self._shares = ClientShares()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[T]:
        return iter(self._clients)

    def add(self, client: str, request: T) -> None:
        """Add a request behind those of its client."""
        self._clients[request] = client
        self._had[request] = 0.0

    def remove(self, request: T) -> None:
        """Remove a request if it is in the queue; after the last one, all charges are reset."""
        client = self._clients.pop(request, None)
        self._had.pop(request, None)
        if client is not None and client not in self._clients.values():
            self._turns.pop(client, None)
        if not self._clients:
            self._shares = ClientShares()

    def client_of(self, request: T) -> str:
        """Return the client of a request."""
        return self._clients[request]

    def clear(self) -> list[T]:
        """Remove and return all requests, the one served least recently first."""
        requests = list(self._clients)
        for request in requests:
            self.remove(request)
        return requests

    def in_turn(self) -> Iterator[T]:
        """Yield the requests in serving order."""
        requests: dict[str, list[T]] = {}
        for request, client in self._clients.items():
            requests.setdefault(client, []).append(request)
        for client, own in requests.items():
            if self._turns.get(client, 0) % 2:
                own.sort(key=lambda request: self._had[request] + self._expected(request))
        costs = {client: self._expected(own[0]) for client, own in requests.items()}
        for client in self._shares.in_order(requests, costs):
            yield from requests[client]

    def charge(self, request: T, cost: float) -> None:
        """Charge a request's client for a slice, and move the request behind the client's others.

        Args:
            request: Request that was served.
            cost: Cost of the complete slice, in any unit that all charges share. A partial charge would put
                newcomers behind the rest of the slice.
        """
        client = self._clients.pop(request)
        self._clients[request] = client
        self._had[request] += cost
        self._turns[client] = self._turns.get(client, 0) + 1
        self._shares.charge([client], cost)
