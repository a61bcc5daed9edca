"""A WebSocket message handled as a POST request, so that the same rules apply to both."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import trio
from hypercorn.typing import ConnectionState, HTTPRequestEvent, HTTPScope
from quart_trio import QuartTrio

from greenroom.http.guard.answer_account import AnswerAccount
from greenroom.http.responses.sockets.event_texts import EventTexts, error_text, refusal_text
from greenroom.http.responses.sockets.incoming_messages import IncomingMessage
from greenroom.http.responses.sockets.socket_request import STATE, SocketRequest
from greenroom.http.transport.client_ids import log_fields_of
from greenroom.http.transport.web_socket import WebSocket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, internal_error

log = get_logger(actor="http")

_OF_ANOTHER_REQUEST = (
    "connection",
    "upgrade",
    "content-length",
    "content-type",
    "content-encoding",
    "expect",
)
"""Headers of the handshake that do not apply to a message."""
_OF_SOCKETS = "sec-websocket-"
_COPIES = 2
"""Copies of an unsent event in memory: as a message, and in its frame."""


class PostedMessage:
    """Posts one message to the application, and sends the resulting events to the client.

    Args:
        unsent: Memory budget that is charged for events until they are sent.
        request: Members of the message, and its socket's histories.
    """

    def __init__(
        self,
        app: QuartTrio,
        unsent: AnswerAccount,
        socket: WebSocket,
        message: IncomingMessage,
        request: SocketRequest,
    ) -> None:
        self._app = app
        self._unsent = unsent
        self._socket = socket
        self._message = message
        self._request = request
        self._texts = EventTexts()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._document = b""
        self._received = False
        self._refusal: Problem | None = None
        self._running = trio.CancelScope()
        self._scope = self._make_scope()

    async def answer(self) -> None:
        """Answer the message; return when its last event is sent."""
        began = time.monotonic()
        self._message.resources.close()  # The request charges its body itself.
        with self._running:
            try:
                await self._app(self._scope, self._receive, self._send)
            except Exception:
                log.exception("message crashed")
        if self._refusal is not None:
            await self._socket.send([error_text(self._refusal, self._request.lane)])
        elif self._status and self._status != 200:
            await self._socket.send(
                [refusal_text(self._status, self._headers, self._document, self._request.lane)]
            )
        elif not self._texts.ended:
            await self._socket.send([error_text(internal_error(), self._request.lane)])
        if self._texts.failed or not self._texts.ended:
            self._request.fail()
        fields = {
            "path": self._socket.path,
            "status": self._status,
            "ms": round((time.monotonic() - began) * 1000, 1),
            "request_id": self._scope["state"].get("request_id"),
        }
        log.info("message answered", **fields | log_fields_of(self._scope["state"]))

    def _make_scope(self) -> HTTPScope:
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in self._socket.headers
            if name.lower() not in _OF_ANOTHER_REQUEST and not name.lower().startswith(_OF_SOCKETS)
        ]
        headers += [
            (b"content-type", b"application/json"),
            (b"content-length", str(self._message.size).encode()),
        ]
        path = self._socket.path
        return {
            "type": "http",
            "asgi": {"spec_version": "2.3", "version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": self._socket.scheme,
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": self._socket.client,
            "server": None,
            "state": ConnectionState({STATE: self._request}),
            "extensions": {},
        }

    async def _receive(self) -> HTTPRequestEvent:
        pieces = self._message.pieces
        if self._received:
            await trio.sleep_forever()
        piece = bytes(pieces.popleft()) if pieces else b""
        self._received = not pieces
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def _send(self, event: Any) -> None:
        match event["type"]:
            case "http.response.start":
                self._status = int(event["status"])
                self._headers = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in event["headers"]
                }
            case "http.response.body" if self._status == 200:
                if texts := self._texts.feed(bytes(event.get("body", b"")), self._request.lane):
                    await self._send_texts(texts)
            case "http.response.body":
                self._document += bytes(event.get("body", b""))

    async def _send_texts(self, texts: list[bytes]) -> None:
        with ExitStack() as unsent:
            try:
                self._unsent.hold(unsent, _COPIES * sum(map(len, texts)))
            except ProblemError as refused:
                self._refusal, self._texts.ended = refused.problem, False
                self._running.cancel("no memory for the answer")
                return
            await self._socket.send(texts)
