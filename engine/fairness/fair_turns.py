"""Whose turn it is, where an answer is heard or read while it is made."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from greenroom.engine.fairness.client_shares import ClientShares

T = TypeVar("T", bound=Hashable)


class FairTurns(Generic[T]):
    """Requests of clients that have equal shares; those of one client go on one after the other.

    Unlike prompts (`FairQueue`), which are worth nothing before they are complete, each of these is waited
    for all the time: none of a client's may stand still while others of it go on.
    """

    def __init__(self) -> None:
        self._clients: dict[T, str] = {}
        self._shares = ClientShares()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[T]:
        return iter(self._clients)

    def add(self, client: str, request: T) -> None:
        """Add a request behind those of its client."""
        self._clients[request] = client

    def remove(self, request: T) -> None:
        """Remove a request, if it is there; behind the last one, nobody owes anything any more."""
        self._clients.pop(request, None)
        if not self._clients:
            self._shares = ClientShares()

    def in_turn(self) -> Iterator[T]:
        """Yield the requests, first the one whose turn it is."""
        requests: dict[str, list[T]] = {}
        for request, client in self._clients.items():
            requests.setdefault(client, []).append(request)
        for client in self._shares.in_order(requests):
            yield from requests[client]

    def charge(self, request: T, cost: float) -> None:
        """Charge a request's client for a turn that it had, and have it wait behind the client's others.

        Args:
            cost: In any unit, the same for all.
        """
        client = self._clients.pop(request)
        self._clients[request] = client
        self._shares.charge([client], cost)
