"""Complete responses that are sent in pieces, and cut off if the client reads too slowly."""

from __future__ import annotations

import trio
from quart.wrappers.response import ResponseBody

from greenroom.http.errors.answer_cut import AnswerCutError

PIECE_BYTES = 256 * 1024
"""Bytes of a response that are passed to the socket at a time."""
GRACE = 60.0
"""Seconds that every client gets before a minimum rate applies."""
LEAST_RATE = 64 * 1024
"""Minimum average rate after that, in bytes per second: unsent responses use up a shared memory budget."""


class PacedAnswer(ResponseBody):
    """The body of a response that is iterated once, in pieces of `PIECE_BYTES`.

    Args:
        data: Complete body.
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
        """Return the next piece, after letting other tasks run.

        Raises:
            AnswerCutError: The client read the previous pieces too slowly.
        """
        await trio.lowlevel.checkpoint()
        if trio.current_time() - self._began > GRACE + self._sent / LEAST_RATE:
            raise AnswerCutError
        if not self._rest:
            raise StopAsyncIteration
        piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
        self._sent += len(piece)
        return bytes(piece)
