"""A WebSocket message handled as a POST request, so that the same rules apply to both."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from contextlib import ExitStack
from typing import Any, cast

import attrs
import trio
from hypercorn.typing import ConnectionState, HTTPRequestEvent, HTTPScope
from quart import request
from quart_trio import QuartTrio

from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.http.responses.incoming_messages import EventTexts, IncomingMessage, error_text, refusal_text
from greenroom.http.transport.request_connection import log_fields_of
from greenroom.http.transport.web_socket import WebSocket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import Problem, ProblemError, internal_error, invalid, missing
from greenroom.schemas.stored import Turns

log = get_logger(actor="http")

_OF_ANOTHER_REQUEST = (
    "connection",
    "upgrade",
    "content-length",
    "content-type",
    "content-encoding",
    "expect",
    "anthropic-version",  # which would give errors a form that no event has
)
"""Headers of the handshake that do not apply to a message."""
_OF_SOCKETS = "sec-websocket-"
_COPIES = 2  # Copies of an unsent event in memory: as a message, and in its frame


class PostedMessage:
    """Posts one message to the application, and sends the resulting events to the client. `unsent`: memory
    budget that is charged for events until they are sent.
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
                self._scope["state"]["refused"] = refused.problem
                self._running.cancel("no memory for the answer")
                return
            await self._socket.send(texts)


CREATE = "response.create"
STATE = "socket_request"  # Key in the state of a request's scope
MAX_LANE = 64  # Length limit of a lane's name in characters


@attrs.define
class SocketRequest:
    """One message of a socket: its own members, and the histories kept in memory.

    Attributes:
        lane: Value of `stream_id` in its events; turns of different lanes are still answered in sequence.
        generates: True if output is to be generated.
        previous: Id of the previous response.
    """

    socket: int
    histories: LocalHistories
    lane: str | None = None
    generates: bool = True
    previous: str | None = None

    def read(self, body: JsonObject) -> None:
        """Read the members that only socket messages have. Raises ProblemError (400) that names the field."""
        previous, lane = body.get("previous_response_id"), body.get("stream_id")
        self.previous = previous if isinstance(previous, str) else None
        if lane is not None and not (isinstance(lane, str) and 0 < len(lane) <= MAX_LANE):
            raise invalid(f"`stream_id` must be a string of 1 to {MAX_LANE} characters.", "stream_id")
        self.lane = lane
        if "type" not in body:
            raise missing("type")
        if body["type"] != CREATE:
            raise invalid(f"`type` must be '{CREATE}': this server takes no other messages.", "type")
        if body.get("background"):
            detail = "`background` is not served over WebSocket: send such a request with POST."
            raise invalid(detail, "background", "unsupported_parameter")
        self.generates = self._flag(body.get("generate"))

    def history(self) -> Turns | None:
        """Return the history up to the previous response, if the socket has it."""
        return None if self.previous is None else self.histories.find(self.socket, self.previous)

    def keep(self, response: str, turns: Turns) -> None:
        """Keep the history up to this response for later turns of the socket."""
        self.histories.keep(self.socket, self.lane or "", response, turns)

    def fail(self) -> None:
        """Remove the previous response's history: a failure ends the chain (Open Responses, 2026-04-24)."""
        if self.previous is not None:
            self.histories.evict(self.socket, self.previous)

    def _flag(self, value: Any) -> bool:
        if value is not None and not isinstance(value, bool):
            raise invalid("`generate` must be true or false.", "generate")
        return value is not False


def socket_request() -> SocketRequest | None:
    """Return the socket's message that the current request answers; None if it came over HTTP."""
    return cast("SocketRequest | None", request.scope["state"].get(STATE))


MAX_LENGTH = 64 << 20
"""Limit of all histories of a process, in characters; the least recently used are evicted."""
ITEM_LENGTH = 256  # Overhead of an item, counted in characters
MAX_LANES = 16  # Limit of lanes per socket whose latest response is kept


@attrs.frozen
class _Kept:
    lane: str
    turns: Turns
    length: int


class LocalHistories:
    """Keeps, for each lane of each socket, the history up to its latest response.

    Attributes:
        length: Size of all histories in characters.
    """

    def __init__(self, max_length: int = MAX_LENGTH) -> None:
        self.length = 0
        self._max_length = max_length
        self._kept: OrderedDict[tuple[int, str], _Kept] = OrderedDict()
        self._latest: defaultdict[int, dict[str, str]] = defaultdict(dict)

    def find(self, socket: int, response: str) -> Turns | None:
        """Return the history up to a response, if it is the latest of one of the socket's lanes."""
        kept = self._kept.get((socket, response))
        if kept is None:
            return None
        self._kept.move_to_end((socket, response))
        return kept.turns

    def keep(self, socket: int, lane: str, response: str, turns: Turns) -> None:
        """Replace the lane's history, evicting others if needed; one that exceeds the limit is not kept."""
        latest = self._latest[socket]
        if lane in latest:
            self.evict(socket, latest[lane])
        elif len(latest) >= MAX_LANES:
            self.evict(socket, next(iter(latest.values())))
        length = sum(len(item.body) + ITEM_LENGTH for turn in turns.turns for item in turn.items)
        if length > self._max_length:
            return
        while self.length + length > self._max_length:
            self.evict(*next(iter(self._kept)))
        self._kept[socket, response] = _Kept(lane, turns, length)
        self._latest[socket][lane] = response
        self.length += length

    def evict(self, socket: int, response: str) -> None:
        kept = self._kept.pop((socket, response), None)
        if kept is not None:
            self.length -= kept.length
            del self._latest[socket][kept.lane]

    def forget(self, socket: int) -> None:
        for response in [*self._latest[socket].values()]:
            self.evict(socket, response)
        del self._latest[socket]
