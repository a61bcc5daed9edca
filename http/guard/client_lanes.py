"""A lane for each client, for work that would only compete for the interpreter if more of it ran at once."""

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
    """Lets each client do one piece of work at a time, and so many clients at once.

    A client waits behind its own work first, so that each has at most one place in the common queue: who asks
    for much makes itself wait, and nobody else.

    Args:
        at_once: Pieces of work that run at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self._running = trio.CapacityLimiter(at_once)
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def lane(self, client: str) -> AsyncIterator[None]:
        """Wait for the client's lane and a place, and hold both.

        Args:
            client: Its name, `address` or `address#key`. All keys of one address share a lane too, since
                anybody may invent another one.
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
