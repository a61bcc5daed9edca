"""Fair admission of clients to work that competes for the GIL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio


@attrs.define(eq=False)
class _Lane:
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0


class ClientLanes:
    """Admits one job per client at a time, and a limited number of jobs in all.

    A client's jobs queue behind each other first, so that each client has at most one place in the common
    queue and many jobs of one client delay only that client.

    Args:
        at_once: Number of jobs that may run concurrently.
    """

    def __init__(self, at_once: int) -> None:
        self._running = trio.CapacityLimiter(at_once)
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def lane(self, client: str) -> AsyncIterator[None]:
        """Wait for the client's turn and for a free slot, and hold both.

        Args:
            client: Name of the client, `address` or `address#key`. Keys of one address also take turns, since
                anybody may invent keys.
        """
        address = client.partition("#")[0]
        async with self._locked(f"{client}#"), self._locked(address), self._running:
            yield

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        lane = self._lanes.setdefault(name, _Lane())
        lane.users += 1
        try:
            async with lane.lock:
                yield
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[name]
