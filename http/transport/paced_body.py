"""A request's body that arrives no faster than it is taken."""

from __future__ import annotations

import trio
from quart_trio.wrappers.request import TrioBody, TrioRequest

HELD_BYTES = 256 * 1024
"""Of a body, which wait to be taken before no more is read from its client's socket."""


class PacedBody(TrioBody):
    """Parts of a body on their way to whoever reads it, and decides how much of it there may be."""

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(None, None)
        self._held = 0
        self._taken = trio.Event()

    async def __anext__(self) -> bytes:
        """Return what has come since.

        Raises:
            StopAsyncIteration: The body is complete.
        """
        part = await super().__anext__()
        # Counted here, since what a body keeps its parts in differs between versions of Quart.
        self._held -= len(part)
        self._taken.set()
        return part

    def expect(self, size: int) -> None:
        """Count a part that is about to be handed on to whoever reads the body."""
        self._held += size

    async def wait_for_room(self) -> None:
        """Wait until little enough is held that more may be read."""
        while self._held > HELD_BYTES:
            self._taken = trio.Event()
            await self._taken.wait()


class PacedRequest(TrioRequest):
    """Quart-Trio's request with such a body."""

    body_class = PacedBody
