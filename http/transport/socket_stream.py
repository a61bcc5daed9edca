"""A client's socket: written to without detours, given up when its reader stalls, cut when time is over."""

from __future__ import annotations

import contextlib
import os
import socket

import trio

STALL = 60.0
"""Seconds without a single byte taken after which a reader is given up."""


class SocketStream(trio.abc.HalfCloseableStream):
    """A connected TCP socket.

    Hypercorn sends under a shield, so a reader that stalls would hold its request, and a shutdown, for ever:
    here the socket itself ends both.

    Args:
        stream: The stream that was accepted; this one takes it over.
        stall: Seconds after which a reader that takes nothing is given up.
    """

    def __init__(self, stream: trio.SocketStream, stall: float = STALL) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._stall = stall
        self._sending = trio.Lock()

    def send_now(self, data: bytes) -> bytes:
        """Send what the socket takes at once, which is nearly always everything: one system call.

        Returns:
            What is left for `send_all`.

        Raises:
            trio.BrokenResourceError: The client is gone.
            trio.ClosedResourceError: The socket was cut.
        """
        return data if self._sending.locked() else data[self._write(data) :]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything, in the order of the calls.

        Raises:
            trio.BrokenResourceError: The client is gone, or takes nothing any more.
            trio.ClosedResourceError: The socket was cut.
        """
        async with self._sending:
            while data:
                await self._wait_writable()
                data = memoryview(data)[self._write(data) :]

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the client has taken something."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """The next bytes; empty when the client has said its last."""
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        """Say that nothing more will come."""
        self.say_eof()

    def say_eof(self) -> None:
        """Say, without waiting, that nothing more will come."""
        with contextlib.suppress(OSError):  # The client was faster.
            self.socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close at once; whoever sends or receives here is woken up."""
        self.socket.close()

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        descriptor = self.socket.fileno()
        if descriptor < 0:
            raise trio.ClosedResourceError
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def _wait_writable(self) -> None:
        if self.socket.fileno() < 0:
            raise trio.ClosedResourceError
        with trio.move_on_after(self._stall) as patience:
            await trio.lowlevel.wait_writable(self.socket.fileno())
        if patience.cancelled_caught:
            self.close()
            raise trio.BrokenResourceError(f"the reader took nothing for {self._stall} s")
