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

READ_BYTES = 64 * 1024
LINGER = 2.0
"""Seconds in which a client may still send what nobody reads, so that it sees the response and no reset."""


class Connection:
    """One client: its requests, one after the other, until either side closes.

    The idle timer ends with the connection, reading goes on for a moment after a last response, and the end
    of a request wakes the reader that waits behind it. Whoever runs it closes the socket, as
    `trio.serve_listeners` does.
    """

    def __init__(
        self, app: AppWrapper, config: ServerConfig, context: WorkerContext, stream: SocketStream
    ) -> None:
        self._app = app
        self._config = config
        self._context = context
        self._stream = stream
        self._idle_timer = TrioSingleTask()
        self._tasks = TaskGroup()
        self._sending_ended = False
        self._reading_ended = False
        self._read_scope = trio.CancelScope()
        self._request_scope = trio.CancelScope()
        self._protocol: Http11

    async def run(self) -> None:
        """Serve the client, and return when everything begun for it has ended."""
        socket = self._stream.socket
        client = parse_socket_addr(socket.family, socket.getpeername())
        server = parse_socket_addr(socket.family, socket.getsockname())
        async with self._tasks:
            self._protocol = Http11(
                self._app,
                self._config,
                self._context,
                self._tasks,
                ConnectionState({}),
                False,
                client,
                server,
                self._on_protocol_event,
            )
            await self._idle_timer.restart(self._tasks, self._close_when_idle)
            await self._read()

    def abort(self) -> None:
        """Close the socket now; whoever sends or reads is woken up."""
        self._stream.close()

    async def _on_protocol_event(self, event: Event) -> None:
        match event:
            case RawData(data):
                await self._send(data)
            case Closed():
                self._end_sending()
            case Updated(idle):
                if self._reading_ended or not idle:
                    await self._idle_timer.stop()
                else:
                    await self._idle_timer.restart(self._tasks, self._close_when_idle)

    async def _send(self, data: bytes) -> None:
        try:
            rest = self._stream.send_now(data)
            if rest:
                # A chunk is sent whole or not at all: a cancelled request leaves the framing intact.
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._read_scope.cancel()
            await self._protocol.handle(Closed())

    def _end_sending(self) -> None:
        self._sending_ended = True
        self._stream.send_eof()
        self._request_scope.cancel()
        self._read_scope.deadline = trio.current_time() + LINGER

    async def _read(self) -> None:
        with self._read_scope:
            while data := await self._receive():
                if not self._sending_ended:
                    with trio.CancelScope() as self._request_scope:
                        await self._protocol.handle(RawData(data))
            if not self._sending_ended:
                await self._protocol.handle(RawData(b""))
        self._reading_ended = True
        await self._idle_timer.stop()
        await self._protocol.handle(Closed())

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _close_when_idle(self) -> None:
        with trio.move_on_after(self._config.keep_alive_timeout):
            await self._context.terminated.wait()
        self._stream.close()
