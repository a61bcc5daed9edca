"""A whole answer that is sent in pieces, and cut off if its reader takes too long."""

from __future__ import annotations

import trio
from quart.wrappers.response import ResponseBody

from greenroom.http.answering.streaming.event_stream import AnswerCutError

PIECE_BYTES = 256 * 1024
"""Of a whole answer, which are handed to the socket at once."""
GRACE = 60.0
"""Seconds that any reader has, however little it takes in them."""
LEAST_RATE = 64 * 1024
"""Bytes a second that a reader must take on average after that: what waits takes the room of others."""


class PacedAnswer(ResponseBody):
    """The body of an answer, which is read once, in pieces of `PIECE_BYTES`.

    Args:
        data: All of it.
    """

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self._sent = 0
        self._began = 0.0

    async def __aenter__(self) -> PacedAnswer:
        self._began = trio.current_time()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._rest = memoryview(b"")

    def __aiter__(self) -> PacedAnswer:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece, once others had their turn on the event loop.

        Raises:
            AnswerCutError: The reader took too long for those before.
        """
        await trio.lowlevel.checkpoint()
        if trio.current_time() - self._began > GRACE + self._sent / LEAST_RATE:
            raise AnswerCutError
        if not self._rest:
            raise StopAsyncIteration
        piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
        self._sent += len(piece)
        return bytes(piece)
