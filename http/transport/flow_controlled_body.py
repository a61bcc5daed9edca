"""Request bodies with flow control."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from quart_trio.wrappers.request import TrioBody, TrioRequest

HELD_BYTES = 256 * 1024
"""Unread bytes of a body at which the socket is no longer read."""

ASK_FOR_BODY = "ask_for_body"
"""Key in the state of a scope, of the function that asks a waiting client for its body."""


class FlowControlledBody(TrioBody):
    """A request body that counts its unread bytes; the reader limits its size.

    Attributes:
        ask: Function that asks a waiting client for its body, before the first read; None for none.
    """

    ask: Callable[[], Awaitable[None]] | None = None

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(None, None)
        self._held = 0
        self._taken = trio.Event()

    async def __anext__(self) -> bytes:
        """Return the data received since the last call.

        Raises:
            StopAsyncIteration: The body is complete.
        """
        if self.ask is not None:
            ask, self.ask = self.ask, None
            await ask()
        part = await super().__anext__()
        # Counted here, since the body's internal buffer differs between versions of Quart.
        self._held -= len(part)
        self._taken.set()
        return part

    def expect(self, size: int) -> None:
        """Count a part that is about to be added to the body."""
        self._held += size

    async def wait_for_room(self) -> None:
        """Wait until the unread bytes are within the limit."""
        while self._held > HELD_BYTES:
            self._taken = trio.Event()
            await self._taken.wait()


class FlowControlledRequest(TrioRequest):
    """Quart-Trio's request with a `FlowControlledBody`."""

    body_class = FlowControlledBody
