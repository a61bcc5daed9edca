"""Whose piece is spoken next: clients take turns, and a client's requests do."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A round of clients, each with a round of its requests."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._rounds.values()))

    def __iter__(self) -> Iterator[T]:
        for requests in self._rounds.values():
            yield from requests

    def add(self, client: str, request: T) -> None:
        """Add a request behind those of its client."""
        self._rounds.setdefault(client, deque()).append(request)

    def remove(self, request: T) -> None:
        """Remove a request, if it is there."""
        for client, requests in self._rounds.items():
            if request in requests:
                requests.remove(request)
                if not requests:
                    del self._rounds[client]
                return

    def current(self) -> T:
        """Return whose turn it is; there must be one."""
        return next(iter(self._rounds.values()))[0]

    def pass_on(self) -> None:
        """Let the next client have its turn, and of this one the next request."""
        client, requests = next(iter(self._rounds.items()))
        requests.rotate(-1)
        self._rounds.move_to_end(client)
