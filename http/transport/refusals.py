"""Refusal of connections beyond the limit, or during a shutdown, logged once per episode."""

from __future__ import annotations

from collections import deque

import trio

from greenroom.http.transport.closing_response import ClosingResponses
from greenroom.http.transport.connection import LINGER, discard
from greenroom.http.transport.descriptors import SpareDescriptor
from greenroom.http.transport.request_head import client_of_head
from greenroom.http.transport.socket_stream import SocketStream
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, too_many_connections

log = get_logger(actor="http")

SPARE_LINGER = 0.05
"""Seconds that a client on the spare descriptor may take: others wait for it."""
RETRY = 0.1
"""Seconds until the next attempt if the system cannot even accept a connection to refuse it."""
HEAD_WAIT = 0.05
"""Longest wait for the head of a refused request, in seconds; it tells the protocol of the error document."""
CALM = 1.0
"""Seconds without a refusal after which an episode is over."""


class Refusals:
    """Refuses connections beyond the limit.

    Args:
        at_once: Limit on open refused connections; beyond it the oldest one is closed.
        responses: Makes the error responses.
    """

    def __init__(self, at_once: int, responses: ClosingResponses) -> None:
        self._at_once = at_once
        self._responses = responses
        self._lingering: deque[trio.CancelScope] = deque()
        self._spare = SpareDescriptor()
        self._spare_lock = trio.Lock()
        self._refused = 0
        self._last = 0.0

    @property
    def is_busy(self) -> bool:
        """True while a refused connection is still open."""
        return bool(self._lingering)

    async def refuse(
        self,
        accepted: trio.SocketStream,
        reason: str,
        linger: float = LINGER,
        problem: Problem | None = None,
    ) -> None:
        """Send a client an error that tells it to retry, and close its connection.

        Args:
            reason: Name of the exceeded limit, for the log.
            linger: Seconds to keep reading, so that the client sees the response and not a TCP reset.
            problem: Problem that it is told; None for that of too many connections.
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
                # The empty buffer of a new socket takes the whole response at once.
                told = too_many_connections() if problem is None else problem
                stream.send_now(self._responses.refuse(told, *client_of_head(head)))
                stream.send_eof()
                await discard(stream.receive_some)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._lingering.remove(scope)
            stream.close()

    def close_at_once(self, accepted: trio.SocketStream, reason: str) -> None:
        """Close the connection of a client that could read an error only after a handshake."""
        self._count(reason)
        accepted.socket.close()

    async def refuse_next(self, listener: trio.SocketListener) -> None:
        """Wait for a client, accept it on the spare descriptor, and refuse it."""
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
        """Log the end of an episode, if there has been no refusal for a while."""
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
    """Return the head of the request, as far as it arrives in time."""
    head = stream.receive_now()
    if not head and seconds:
        with trio.move_on_after(seconds, shield=True):  # A client is answered even if another displaces it.
            await stream.wait_readable()
            head = stream.receive_now()
    return head
