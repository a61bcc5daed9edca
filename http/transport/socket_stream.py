"""A client's socket: written to without detours, closed when its reader stalls or time is over."""

from __future__ import annotations

import contextlib
import math
import os
import socket

import trio

from greenroom.http.answering.streaming.paced_answer import PIECE_BYTES

SEND_TIMEOUT = 60.0
"""Seconds in which a reader must take what is handed over at once, else its connection is closed."""
STALL_TIME = 1.0
"""Seconds without a single byte taken after which a shutdown waits for a client no longer."""


class SocketStream:
    """A connected TCP socket.

    Hypercorn sends under a shield, so a reader that stalls would hold its request, and a shutdown, for ever:
    here the socket itself ends both.

    Args:
        stream: The stream that was accepted; this one takes it over.
        send_timeout: Seconds that a client has for `PIECE_BYTES`, or less; then it is disconnected.
    """

    def __init__(self, stream: trio.SocketStream, send_timeout: float = SEND_TIMEOUT) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._send_timeout = send_timeout
        self._send_lock = trio.Lock()
        self._blocked_at = math.inf

    @property
    def is_stalled(self) -> bool:
        """Whether the client has left what was sent to it lying for a while."""
        return trio.current_time() - self._blocked_at > STALL_TIME

    def send_now(self, data: bytes) -> bytes | memoryview:
        """Send what the socket takes at once, which is nearly always everything: one system call.

        Returns:
            What is left for `send_all`.

        Raises:
            trio.BrokenResourceError: The client is gone.
            trio.ClosedResourceError: The socket was closed here.
        """
        return data if self._send_lock.locked() else memoryview(data)[self._write(data) :]

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send everything, in the order of the calls.

        Raises:
            trio.BrokenResourceError: The client is gone, or takes too little.
            trio.ClosedResourceError: The socket was closed here.
        """
        async with self._send_lock:
            deadline = trio.current_time() + self._send_timeout * max(1.0, len(data) / PIECE_BYTES)
            while data:
                await self._wait_writable(deadline)
                data = memoryview(data)[self._write(data) :]

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return the next bytes; none when the client has ended its side."""
        return await self._stream.receive_some(max_bytes)

    def receive_now(self, max_bytes: int = 4096) -> bytes:
        """Return bytes that need not be waited for; none if there are none.

        Raises:
            trio.BrokenResourceError: The client is gone.
            trio.ClosedResourceError: The socket was closed here.
        """
        descriptor = self.socket.fileno()
        if descriptor < 0:
            raise trio.ClosedResourceError
        try:
            return os.read(descriptor, max_bytes)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def wait_readable(self) -> None:
        """Wait until there are bytes to be received, or the client has ended its side."""
        await trio.lowlevel.wait_readable(self.socket)

    def send_eof(self) -> None:
        """End the sending side, without waiting."""
        with contextlib.suppress(OSError):  # The client was faster.
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close at once; whoever sends or receives here is woken up."""
        self.socket.close()

    def _write(self, data: bytes | memoryview) -> int:
        descriptor = self.socket.fileno()
        if descriptor < 0:
            raise trio.ClosedResourceError
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def _wait_writable(self, deadline: float) -> None:
        if self.socket.fileno() < 0:
            raise trio.ClosedResourceError
        self._blocked_at = trio.current_time()
        try:
            with trio.move_on_at(deadline) as scope:
                await trio.lowlevel.wait_writable(self.socket.fileno())
        finally:
            self._blocked_at = math.inf
        if scope.cancelled_caught:
            self.close()
            raise trio.BrokenResourceError("the client takes too little")
