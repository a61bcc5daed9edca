"""One connection, as Hypercorn's `TCPServer` serves it, but nothing leaks (notes/http.md)."""

from __future__ import annotations

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import TrioSingleTask, WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from greenroom.http.transport.http11 import Http11, ServerConfig
from greenroom.http.transport.socket_stream import SocketStream
from greenroom.schemas.problems import draining

READ_BYTES = 64 * 1024
LINGER = 2.0
"""Seconds in which a client may still send what nobody reads, so that it sees the response and no reset."""


class Connection:
    """One client: its requests, one after the other, until either side closes.

    The socket is read all the time, also while a request is answered: the end of what the client sends means
    that it has left (RFC 9112, section 9.5), and everything begun for it is cancelled. Reading goes on for a
    moment after a last response. Whoever runs it closes the socket (`abort`).

    Raises:
        OSError: The client has gone before it was asked for its address.
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
        self._ended = False
        socket = stream.socket
        self._protocol = Http11(
            app,
            config,
            context,
            self._tasks,
            ConnectionState({}),
            False,
            parse_socket_addr(socket.family, socket.getpeername()),
            parse_socket_addr(socket.family, socket.getsockname()),
            self._on_protocol_event,
            read_ahead=self._read_ahead,
        )

    async def run(self) -> None:
        """Serve the client, and return when everything begun for it has ended."""
        with self._serving:
            async with self._tasks:
                await self._idle_timer.restart(self._tasks, self._close_when_idle)
                while data := await self._receive():
                    await self._protocol.handle(RawData(data))
                await self._hang_up()
        with trio.move_on_after(LINGER):
            while await self._receive():
                pass

    @property
    def is_answering(self) -> bool:
        """Whether something is under way that a shutdown should wait for: not if the client takes nothing."""
        return not self._ended and not self._stream.is_stalled

    def abort(self) -> None:
        """Close the socket now; whoever sends or reads is woken up."""
        self._stream.close()

    def drain(self) -> None:
        """Take no more: a request whose body is still arriving is refused, one that is whole is answered."""
        self._protocol.drain_web_socket()
        if self._protocol.is_uploading:
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
                # A chunk is sent whole or not at all: a cancelled request leaves the framing intact.
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._hang_up()

    async def _hang_up(self) -> None:
        """Cancel everything: the client is gone. Nothing here waits, for it may be called while cancelled."""
        self._ended = True
        self._stream.close()
        self._serving.cancel("the client is gone")
        await self._protocol.handle(Closed())

    async def _read_ahead(self) -> None:
        """Keep what the client sends behind a request that is being answered, until this is cancelled."""
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
