"""HTTP/1.1 on one connection, based on Hypercorn's protocol."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, Event, Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ASGISendEvent, ConnectionState, ResponseSummary

from greenroom.http.transport.request_connection import ASK_FOR_BODY
from greenroom.http.transport.request_head import (
    ClosingResponses,
    client_of,
    has_two_lengths,
    is_well_formed,
    no_record,
)
from greenroom.http.transport.web_socket import WebSocket, WebSockets, asks_for_web_socket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem

log = get_logger(actor="http")

MAX_AHEAD = 256 * 1024
"""Bytes that a client may send ahead of a response; with more, the connection closes after that response."""
MAX_HEADERS = 256  # Limit on header fields: within `MAX_HEAD_BYTES`, a head could have 20,000 short ones


class ServerConfig(Config):
    """Hypercorn's configuration, with the responses to refused requests and WebSocket handlers."""

    def __init__(self, responses: ClosingResponses, web_sockets: WebSockets) -> None:
        self.responses = responses
        self.web_sockets = web_sockets


class Http11(H11Protocol):
    """HTTP/1.1 only: no HTTP/2, and WebSocket only on configured paths.

    The app gets no disconnect event at the end of a request: Quart-Trio would cancel the request while it
    still finishes. On a real disconnect, the connection cancels all its tasks.

    Args:
        read_ahead: Reads the socket while a request is being answered, and passes the data to `keep`.
    """

    stream: HTTPStream | None
    connection: h11.Connection
    config: ServerConfig
    _chunked = False
    _refused = False
    _overrun = False
    _request: h11.Request | None = None
    _web_socket: WebSocket | None = None

    def __init__(self, *args: Any, read_ahead: Callable[[], Awaitable[None]]) -> None:
        super().__init__(*args)
        self.can_read: Pause = Pause(read_ahead)

    @property
    def is_uploading(self) -> bool:
        """True if a request's body is incomplete and its response has not started."""
        states = (self.connection.their_state, self.connection.our_state)
        return states == (h11.SEND_BODY, h11.SEND_RESPONSE) and self._web_socket is None

    async def handle(self, event: ConnectionEvent) -> None:
        """Process received data or a disconnect."""
        if self._web_socket is not None and isinstance(event, RawData):
            await self._web_socket.feed(event.data)
        else:
            await super().handle(event)

    def drain_web_socket(self) -> None:
        """Tell a WebSocket, if there is one, that the server shuts down."""
        if self._web_socket is not None:
            self._web_socket.draining.set()

    def keep(self, data: bytes) -> None:
        """Buffer data that arrives while a request is being answered, up to a limit."""
        self._overrun = self._overrun or len(self.connection.trailing_data[0]) + len(data) > MAX_AHEAD
        if not self._overrun:
            self.connection.receive_data(data)

    async def stream_send(self, event: Event) -> None:
        if isinstance(event, Body) and self._chunked and self.connection.our_state is h11.SEND_BODY:
            # A shortcut past five layers of h11, because this runs once per token.
            await self.send(RawData(b"%x\r\n%b\r\n" % (len(event.data), event.data)))
            return
        await super().stream_send(event)

    async def ask_for_body(self) -> None:
        """Tell a client that waits for it that its body is wanted (RFC 9110, section 10.1.1)."""
        if self.connection.they_are_waiting_for_100_continue and not self._refused:
            await super()._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))

    async def _send_h11_event(self, event: Any) -> None:
        if self._refused or isinstance(event, h11.InformationalResponse):
            return  # Hypercorn asks for every body at once, even without a key.
        if isinstance(event, h11.Response):
            has_length = any(name == b"content-length" for name, _ in event.headers)
            self._chunked = not has_length and self.connection.their_http_version == b"1.1"
            if self.connection.their_state is h11.SEND_BODY:
                # A response before the end of the request's body ends the connection. Without this header,
                # the client would send its next request on it.
                headers = [*event.headers, (b"connection", b"close")]
                event = h11.Response(status_code=event.status_code, headers=headers)
        await super()._send_h11_event(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Ignore upgrades to HTTP/2, as a server may."""

    async def _create_stream(self, request: h11.Request) -> None:
        self._request = request
        if not request.http_version.startswith(b"1."):
            await self.refuse(Problem(505, "http_version_not_supported", "This server speaks HTTP/1.1."))
            return
        if request.method != request.method.upper():  # Methods are case-sensitive (RFC 9110, section 9.1).
            detail = "The names of methods are upper case, such as GET."
            await self.refuse(Problem(501, "method_not_implemented", detail))
            return
        if len(request.headers) > MAX_HEADERS:
            detail = f"The request has more than {MAX_HEADERS} headers."
            await self.refuse(Problem(431, "too_many_headers", detail))
            return
        if has_two_lengths(request):
            await self._send_error_response(400, "A chunked request has no Content-Length.")
            return
        if not is_well_formed(request):
            await self._send_error_response(400, "The request's target or its Host is malformed.")
            return
        serve = self.config.web_sockets.get(client_of(request)[0])
        if serve is not None and asks_for_web_socket(request):
            scheme = "https" if self.ssl else "http"
            self._web_socket = WebSocket(request, self.client, self._write, self.config.responses, scheme)
            self.task_group.spawn(self._serve_web_socket, self._web_socket, serve)
            await self._web_socket.feed(self.connection.trailing_data[0])
            return
        self.stream = RequestStream(
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
                method=request.method.decode("ascii"),
                raw_path=request.target,
                state=ConnectionState({**self.connection_state, ASK_FOR_BODY: self.ask_for_body}),
            )
        )

    async def _serve_web_socket(
        self, web_socket: WebSocket, serve: Callable[[WebSocket], Awaitable[None]]
    ) -> None:
        await serve(web_socket)
        await self.send(Closed())

    async def _write(self, data: bytes) -> None:
        await self.send(RawData(data))

    async def _send_error_response(
        self, status_code: int, detail: str = "The request is not valid HTTP/1.1."
    ) -> None:
        """Answer invalid HTTP with a problem document too."""
        await self.refuse(Problem(status_code, "bad_request", detail))

    async def refuse(self, problem: Problem) -> None:
        """Send an error response instead of the app's, and close the connection."""
        if self._refused or self.connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        self._refused = True
        path, headers = client_of(self._request)
        with_body = self._request is None or self._request.method != b"HEAD"
        responses, stream = self.config.responses, self.stream
        if stream is not None:  # The app has begun it, and ends its record.
            responses = attrs.evolve(responses, record=no_record)
            stream.scope["state"]["refused"] = problem
        await self.send(RawData(responses.refuse(problem, path, headers, with_body)))
        if stream is not None:
            await self._log_answer(stream, {"status": problem.status, "headers": []})
        else:
            log.info("request refused", status=problem.status, problem=problem.code, path=path)
        await self.send(Closed())

    async def _maybe_recycle(self) -> None:
        if self._overrun:
            await self._close_stream()
            await self.send(Closed())
        else:
            await super()._maybe_recycle()

    async def _close_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None and not stream.closed:
            await self._log_answer(stream, None)

    async def _log_answer(self, stream: HTTPStream, response: ResponseSummary | None) -> None:
        stream.closed = True
        if stream.state is not ASGIHTTPState.CLOSED:
            stream.state = ASGIHTTPState.CLOSED
            seconds = time.time() - stream.start_time
            await self.config.log.access(stream.scope, response, seconds)  # type: ignore[arg-type]


class RequestStream(HTTPStream):
    """One request as the app sees it."""

    async def app_send(self, message: ASGISendEvent | None) -> None:
        """Send a part of the response, unless the client has disconnected or the request was refused."""
        if not self.closed:
            await super().app_send(message)


class Pause:
    """Replacement for Hypercorn's event that delays pipelined requests; while it waits, it reads ahead."""

    def __init__(self, read_ahead: Callable[[], Awaitable[None]]) -> None:
        self._read_ahead = read_ahead
        self._waiting = trio.CancelScope()

    async def clear(self) -> None:
        self._waiting = trio.CancelScope()

    async def set(self) -> None:
        self._waiting.cancel("the request before is answered")

    def is_set(self) -> bool:
        return self._waiting.cancel_called

    async def wait(self) -> None:
        """Read ahead until the pause ends."""
        with self._waiting:
            await self._read_ahead()
