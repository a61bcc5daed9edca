"""Hypercorn's connection class, mended where it leaks connections and requests (notes/http.md)."""

from __future__ import annotations

from itertools import chain
from typing import Any
from uuid import uuid4

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Request
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from greenroom.http.answering.problem_documents import ErrorMembers, problem_document, problem_headers
from greenroom.http.transport.socket_stream import SocketStream
from greenroom.schemas.problems import Problem

LINGER = 2.0
"""Seconds in which a client may still send what nobody reads, so that it sees the answer and no reset."""


class ServerConfig(Config):
    """Hypercorn's configuration, with the shape of what is refused before a path is known."""

    def __init__(self, error_members: ErrorMembers) -> None:
        self.error_members = error_members


class Connection(TCPServer):
    """One client: its requests, one after the other, until either side closes.

    Unlike its base it ends its idle timer with the connection, reads on for a moment after a last answer,
    and wakes a reader that waits for a request which has ended. Whoever runs it closes the socket, as
    `trio.serve_listeners` does.
    """

    stream: SocketStream  # type: ignore[assignment]

    def __init__(
        self, app: AppWrapper, config: ServerConfig, context: WorkerContext, stream: SocketStream
    ) -> None:
        super().__init__(app, config, context, {}, stream)  # type: ignore[arg-type]
        self._last_said = False
        self._ended = False
        self._reading = trio.CancelScope()
        self._handling = trio.CancelScope()

    async def run(self) -> None:
        """Serve the client, and return when everything begun for it has ended."""
        socket = self.stream.socket
        client = parse_socket_addr(socket.family, socket.getpeername())
        server = parse_socket_addr(socket.family, socket.getsockname())
        async with TaskGroup() as tasks:
            self._task_group = tasks
            self.protocol: Any = Http11(
                self.app,
                self.config,
                self.context,
                tasks,
                ConnectionState(self.state),
                False,
                client,
                server,
                self.protocol_send,
            )
            await self.idle_task.restart(tasks, self._idle_timeout)
            await self._read_data()

    def cut(self) -> None:
        """End the connection now, whoever sends or reads."""
        self.stream.close()

    async def protocol_send(self, event: Event) -> None:
        """Do what the protocol wants done with the socket."""
        match event:
            case RawData(data):
                await self._send(data)
            case Closed():
                self._say_last()
            case Updated(idle):
                if self._ended or not idle:
                    await self.idle_task.stop()
                else:
                    await self.idle_task.restart(self._task_group, self._idle_timeout)

    async def _send(self, data: bytes) -> None:
        try:
            rest = self.stream.send_now(data)
            if rest:
                # A chunk is sent whole or not at all: a cancelled request leaves the framing intact.
                with trio.CancelScope(shield=True):
                    await self.stream.send_all(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._reading.cancel()
            await self.protocol.handle(Closed())

    def _say_last(self) -> None:
        self._last_said = True
        self.stream.say_eof()
        self._handling.cancel()
        self._reading.deadline = trio.current_time() + LINGER

    async def _read_data(self) -> None:
        with self._reading:
            while data := await self._receive():
                if not self._last_said:
                    with trio.CancelScope() as self._handling:
                        await self.protocol.handle(RawData(data))
            if not self._last_said:
                await self.protocol.handle(RawData(b""))
        self._ended = True
        await self.idle_task.stop()
        await self.protocol.handle(Closed())

    async def _receive(self) -> bytes:
        try:
            return bytes(await self.stream.receive_some(MAX_RECV))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _idle_timeout(self) -> None:
        with trio.move_on_after(self.config.keep_alive_timeout):
            await self.context.terminated.wait()
        self.stream.close()


class Http11(H11Protocol):
    """HTTP/1.1 and nothing else: no HTTP/2, which this server has no use for, and no WebSocket."""

    stream: HTTPStream | None
    connection: h11.Connection
    config: ServerConfig
    _chunked = False

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response."""
        if isinstance(event, Body) and self._chunked and self.connection.our_state is h11.SEND_BODY:
            # h11 would do the same through five layers, once per token.
            await self.send(RawData(b"%x\r\n%b\r\n" % (len(event.data), event.data)))
            return
        await super().stream_send(event)

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.Response):
            sized = any(name == b"content-length" for name, _ in event.headers)
            self._chunked = not sized and self.connection.their_http_version == b"1.1"
        await super()._send_h11_event(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Upgrades are ignored, as a server may."""

    async def _create_stream(self, request: h11.Request) -> None:
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def _send_error_response(self, status_code: int) -> None:
        """Answer what is no HTTP at all with a problem document too."""
        problem = Problem(status_code, "bad_request", "The request is not valid HTTP/1.1.")
        request_id = new_request_id()
        body = problem_document(problem, request_id, self.config.error_members)
        headers = {
            **problem_headers(problem),
            "content-length": str(len(body)),
            "connection": "close",
            "x-request-id": request_id,
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        every = list(chain(encoded, self.config.response_headers("h11")))
        await self._send_h11_event(h11.Response(status_code=status_code, headers=every))
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


def new_request_id() -> str:
    """An id that the client, the logs and the actors call a request by."""
    return f"req_{uuid4().hex}"
