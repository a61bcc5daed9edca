"""Whose turn it is, where an answer is heard or read while it is made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from greenroom.engine.fairness.client_shares import ClientShares

T = TypeVar("T", bound=Hashable)


class FairTurns(Generic[T]):
    """Requests of clients that have equal shares.

    Unlike prompts (`FairQueue`), which are worth nothing before they are complete, each of these is waited
    for all the time: none of a client's may stand still while others of it go on. So of one client every
    second turn is for the one that waits longest, the others for the one that has had least: a short one
    that comes late need not wait for a turn of each of the long ones.

    Args:
        expected: What the next turn of a request will cost, if turns are of different lengths; in the unit of
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
        """Remove a request, if it is there; behind the last one, nobody owes anything any more."""
        client = self._clients.pop(request, None)
        self._had.pop(request, None)
        if client is not None and client not in self._clients.values():
            self._turns.pop(client, None)
        if not self._clients:
            self._shares = ClientShares()

    def clear(self) -> list[T]:
        """Remove and return all, first that whose turn is longest ago."""
        requests = list(self._clients)
        for request in requests:
            self.remove(request)
        return requests

    def in_turn(self) -> Iterator[T]:
        """Yield the requests, first the one whose turn it is."""
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
        """Charge a request's client for a turn that it had, and have it wait behind the client's others.

        Args:
            cost: In any unit, the same for all; of the whole turn, or who comes meanwhile would stand behind
                what others have had of theirs.
        """
        client = self._clients.pop(request)
        self._clients[request] = client
        self._had[request] += cost
        self._turns[client] = self._turns.get(client, 0) + 1
        self._shares.charge([client], cost)
