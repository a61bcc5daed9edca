"""Connections over the limit: each is told to come back, and the log says so once until it is over."""

from __future__ import annotations

from collections import deque

import trio

from greenroom.http.answering.errors.problem_documents import ErrorShapes
from greenroom.http.transport.closing_response import closing_response
from greenroom.http.transport.connection import LINGER
from greenroom.http.transport.descriptors import SpareDescriptor
from greenroom.http.transport.request_head import client_of_head
from greenroom.http.transport.socket_stream import SocketStream
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import too_many_connections

log = get_logger(actor="http")

SPARE_LINGER = 0.05
"""Seconds for a client that was accepted on the spare descriptor: others wait behind it."""
RETRY = 0.1
"""Seconds until the next attempt where the system has not even room for a refusal."""
HEAD_WAIT = 0.05
"""Seconds for the head of a request: it comes with the connection, and is answered in its own protocol."""
CALM = 1.0
"""Seconds without a refusal after which the limit is no longer exceeded."""


class Refusals:
    """What happens to connections that there is no room for.

    Args:
        at_once: How many may be open; the oldest is closed for another one.
        error_shapes: What a client's protocol adds to the document.
    """

    def __init__(self, at_once: int, error_shapes: ErrorShapes) -> None:
        self._at_once = at_once
        self._error_shapes = error_shapes
        self._lingering: deque[trio.CancelScope] = deque()
        self._spare = SpareDescriptor()
        self._spare_lock = trio.Lock()
        self._refused = 0
        self._last = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a connection is open that was refused."""
        return bool(self._lingering)

    async def refuse(self, accepted: trio.SocketStream, reason: str, linger: float = LINGER) -> None:
        """Tell a client to come back, and close its connection.

        Args:
            reason: What is exceeded, for the log.
            linger: Seconds in which it may still send, so that it sees the response and no reset.
        """
        self._count(reason)
        stream = SocketStream(accepted)
        crowded = len(self._lingering) >= self._at_once
        if crowded:
            self._lingering[0].cancel("another one is refused")
        scope = trio.CancelScope(relative_deadline=linger)
        self._lingering.append(scope)
        try:
            with scope:
                head = await _read_head(stream, 0.0 if crowded else min(HEAD_WAIT, linger / 2))
                members = self._error_shapes(*client_of_head(head))
                # A new socket takes it whole, without waiting.
                stream.send_now(closing_response(too_many_connections(), members))
                stream.send_eof()
                while await stream.receive_some():
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._lingering.remove(scope)
            stream.close()

    async def refuse_next(self, listener: trio.SocketListener) -> None:
        """Wait for a client that no descriptor is left for, accept it on the spare one and refuse it."""
        await trio.lowlevel.wait_readable(listener.socket)
        async with self._spare_lock:
            self._spare.release()
            try:
                with trio.move_on_after(RETRY):
                    await self.refuse(await listener.accept(), "descriptors", SPARE_LINGER)
            except OSError:
                self._count("descriptors", clients=0)
                await trio.sleep(RETRY)
            finally:
                self._spare.reserve()

    def on_accepted(self) -> None:
        """Say that it is over, if it is: there is room again, and has been for a while."""
        if self._last and trio.current_time() - self._last > CALM:
            log.info("connections accepted again", refused=self._refused)
            self._refused, self._last = 0, 0.0

    def close(self) -> None:
        """Release the spare descriptor for good."""
        self._spare.release()

    def _count(self, reason: str, clients: int = 1) -> None:
        if not self._last:
            log.warning("connections refused", reason=reason)
        self._refused += clients
        self._last = trio.current_time()


async def _read_head(stream: SocketStream, seconds: float) -> bytes:
    """Return the beginning of what a client asks, which tells its protocol, if it comes within that time."""
    head = stream.receive_now()
    if not head and seconds:
        with trio.move_on_after(seconds, shield=True):  # It gets its answer even if it has to go.
            await stream.wait_readable()
            head = stream.receive_now()
    return head
