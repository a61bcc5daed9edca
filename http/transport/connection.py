"""One connection, served like Hypercorn's `TCPServer` does but without leaks (notes/http.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from socket import AF_UNIX
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import TrioSingleTask, WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from greenroom.http.guard.host_guard import UNIX_CLIENT
from greenroom.http.guard.local_programs import PEER, peer_of
from greenroom.http.transport.http11 import Http11, ServerConfig
from greenroom.http.transport.socket_stream import SocketStream
from greenroom.schemas.problems import draining

READ_BYTES = 64 * 1024
LINGER = 2.0
"""Seconds to keep reading after the last response, so that the client sees it and not a TCP reset."""
LINGER_BYTES = 128 << 20
"""Bytes to read after the last response: more than the largest body by default, since many clients read only
after they have sent all, while an endless upload ends."""


class Connection:
    """Serves one client's requests in sequence until either side closes.

    The socket is read even while a request is being answered: end of file means that the client has
    disconnected (RFC 9112, section 9.5), and cancels everything started for it. Reading continues briefly
    after the last response. The caller closes the socket with `abort`.

    Raises:
        OSError: The client disconnected before its address could be read.
    """

    def __init__(
        self, app: AppWrapper, config: ServerConfig, context: WorkerContext, stream: SocketStream
    ) -> None:
        self._config = config
        self._context = context
        self._stream = stream
        self._idle_timer = TrioSingleTask()
        self._tasks = TaskGroup()
        self._serving = trio.CancelScope()
        self._is_open = self._ended = False
        socket = stream.socket
        self._protocol = Http11(
            app,
            config,
            context,
            self._tasks,
            ConnectionState({PEER: peer_of(socket)}),
            stream.scheme == "https",
            _address(socket.family, socket.getpeername()),
            _address(socket.family, socket.getsockname()),
            self._on_protocol_event,
            read_ahead=self._read_ahead,
        )

    async def run(self) -> None:
        """Serve the client, and return when all its tasks have ended."""
        if not await self._stream.open():
            return
        self._is_open = True
        with self._serving:
            async with self._tasks:
                await self._idle_timer.restart(self._tasks, self._close_when_idle)
                while data := await self._receive():
                    await self._protocol.handle(RawData(data))
                await self._hang_up()
        with trio.move_on_after(LINGER):
            await discard(self._receive)

    @property
    def is_answering(self) -> bool:
        """True if a shutdown should wait for this connection: it is open, and its client is not stalled."""
        return not self._ended and not self._stream.is_stalled

    def abort(self) -> None:
        """Close the socket now, which wakes up blocked reads and writes."""
        self._stream.close()

    def drain(self) -> None:
        """Start no new work: refuse a request whose body is incomplete, but finish a complete one."""
        self._protocol.drain_web_socket()
        if not self._is_open:
            self._stream.close()  # a handshake may take seconds, and nothing is asked yet
        elif self._protocol.is_uploading and not self._ended:
            self._tasks.spawn(self._protocol.refuse, draining())

    async def _on_protocol_event(self, event: Event) -> None:
        match event:
            case RawData(data):
                await self._send(data)
            case Closed():
                self._ended = True
                self._stream.send_eof()
                self._serving.cancel("the last response is sent")
            case Updated(idle=True):
                await self._idle_timer.restart(self._tasks, self._close_when_idle)
            case Updated():
                await self._idle_timer.stop()

    async def _send(self, data: bytes) -> None:
        try:
            rest = self._stream.send_now(data)
            if rest:
                # The shield keeps chunks whole: cancelling a request must not break the framing.
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._hang_up()

    async def _hang_up(self) -> None:
        """Cancel everything after a disconnect. Nothing here blocks, since it may run while cancelled."""
        self._ended = True
        self._stream.close()
        self._serving.cancel("the client is gone")
        await self._protocol.handle(Closed())

    async def _read_ahead(self) -> None:
        """Buffer the client's next requests while one is being answered, until cancelled."""
        while data := await self._receive():
            self._protocol.keep(data)
        await self._hang_up()
        await trio.sleep_forever()

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _close_when_idle(self) -> None:
        with trio.move_on_after(self._config.keep_alive_timeout):
            await self._context.terminated.wait()
        self._stream.close()


def _address(family: int, name: Any) -> tuple[str, int] | None:
    """Return a client's address as ASGI has it; all clients of a Unix socket share one name."""
    return (UNIX_CLIENT, 0) if family == AF_UNIX else parse_socket_addr(family, name)


async def discard(receive: Callable[[], Awaitable[bytes | bytearray]]) -> None:
    """Read and discard what a client still sends, up to `LINGER_BYTES`."""
    left = LINGER_BYTES
    while left > 0 and (data := await receive()):
        left -= len(data)
