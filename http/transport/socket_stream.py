"""A client's socket with direct writes and time limits."""

from __future__ import annotations

import contextlib
import math
import os
import socket

import trio
from quart.wrappers.response import ResponseBody

from greenroom.http.encoding.problem_documents import AnswerCutError

SEND_TIMEOUT = 60.0  # Time limit for a client to accept one write of up to `PIECE_BYTES`, in seconds
STALL_TIME = 1.0  # Seconds without progress of a write after which a shutdown no longer waits for the client


class SocketStream:
    """A connected socket.

    Attributes:
        scheme: Scheme of the URLs that the client uses.

    Hypercorn shields its sends from cancellation, so that a stalled client would hold its request and a
    shutdown forever. Closing the socket ends both.

    Args:
        stream: Accepted stream; this object takes ownership of its socket.
        send_timeout: Time limit for up to `PIECE_BYTES`, in seconds; then the client is disconnected.
    """

    scheme = "http"

    def __init__(self, stream: trio.SocketStream, send_timeout: float = SEND_TIMEOUT) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._send_timeout = send_timeout
        self._send_lock = trio.Lock()
        self._blocked_at = math.inf

    @property
    def is_stalled(self) -> bool:
        return trio.current_time() - self._blocked_at > STALL_TIME

    async def open(self) -> bool:
        """Prepare the connection, and return whether it can be used; a plain one needs nothing."""
        return True

    def send_now(self, data: bytes) -> bytes | memoryview:
        """Send the bytes that the socket accepts without waiting, usually all of them in one system call.

        Returns:
            The unsent rest, for `send_all`.

        Raises:
            trio.BrokenResourceError: The client has disconnected.
            trio.ClosedResourceError: This side has closed the socket.
        """
        return data if self._send_lock.locked() else memoryview(data)[self._write(data) :]

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send all bytes, in the order of calls.

        Raises:
            trio.BrokenResourceError: The client has disconnected, or accepts data too slowly.
            trio.ClosedResourceError: This side has closed the socket.
        """
        async with self._send_lock:
            deadline = trio.current_time() + self._send_timeout * max(1.0, len(data) / PIECE_BYTES)
            while data:
                await self._wait_writable(deadline)
                data = memoryview(data)[self._write(data) :]

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return the next bytes; empty at end of file."""
        return await self._stream.receive_some(max_bytes)

    def receive_now(self, max_bytes: int = 4096) -> bytes:
        """Return the bytes that are available without waiting; empty if there are none.

        Raises:
            trio.BrokenResourceError: The client has disconnected.
            trio.ClosedResourceError: This side has closed the socket.
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
        await trio.lowlevel.wait_readable(self.socket)

    def send_eof(self) -> None:
        """Close the sending direction, without waiting."""
        with contextlib.suppress(OSError):  # The client closed first.
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
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


PIECE_BYTES = 256 * 1024  # Bytes of a response that are passed to the socket at a time
GRACE = 60.0  # Seconds that every client gets before a minimum rate applies
LEAST_RATE = 64 * 1024
"""Minimum average rate after that, in bytes per second: unsent responses use up a shared memory budget."""


class PacedAnswer(ResponseBody):
    """The body of a response that is iterated once, in pieces of `PIECE_BYTES`."""

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
        """Return the next piece, after letting other tasks run. Raises AnswerCutError: the client read the
        previous pieces too slowly.
        """
        await trio.lowlevel.checkpoint()
        if trio.current_time() - self._began > GRACE + self._sent / LEAST_RATE:
            raise AnswerCutError
        if not self._rest:
            raise StopAsyncIteration
        piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
        self._sent += len(piece)
        return bytes(piece)
