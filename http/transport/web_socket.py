"""WebSocket on one connection (RFC 6455): message parts and closing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import formatdate

import attrs
import h11
import trio
from werkzeug.datastructures import Headers
from wsproto.connection import Connection as FrameReader
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from greenroom.http.transport.request_head import OF_STRANGERS, ClosingResponses, client_of
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem

log = get_logger(actor="http")

PARTS_AHEAD = 4  # Limit on unread message parts, beyond which the socket is not read
EVENTS_AT_ONCE = 8
"""Frames to process before other connections run: the smallest has six bytes, and many may send them."""
_FINAL_TEXT = 0x81
_SHORT, _MEDIUM = 126, 1 << 16
_KEY_LENGTH = 24  # Length of 16 bytes in base64


@attrs.frozen
class Part:
    """A part of a message, in order of arrival."""

    data: bytes
    is_text: bool
    ends: bool


class WebSocket:
    """One client's WebSocket, which is read only as fast as its parts are consumed.

    Attributes:
        draining: Set when the server shuts down: no new work may start.
    """

    def __init__(
        self,
        request: h11.Request,
        client: tuple[str, int] | None,
        write: Callable[[bytes], Awaitable[None]],
        responses: ClosingResponses,
        scheme: str = "http",
    ) -> None:
        self.scheme = scheme
        self.path, self.headers = client_of(request)
        self.client = client
        self.draining = trio.Event()
        self._write = write
        self._responses = responses
        self._reader = FrameReader(ConnectionType.SERVER)
        self._ended = False
        self._budget = FrameBudget(trio.current_time)
        self._parts, self._taken = trio.open_memory_channel[Part](PARTS_AHEAD)

    async def refuse(self, problem: Problem) -> None:
        """Answer the request with an error, which ends the connection."""
        self._ended = True
        told = {"status": problem.status, "problem": problem.code, "path": self.path}
        if self.client and problem.status in OF_STRANGERS:
            told["address"] = self.client[0]
        log.info("request refused", **told)
        await self._write(self._responses.refuse(problem, self.path, self.headers))

    async def accept(self) -> None:
        """Complete the handshake without any extension."""
        token = generate_accept_token(self.headers["Sec-WebSocket-Key"].encode()).decode()
        head = {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-accept": token,
            "date": formatdate(usegmt=True),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        await self._write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())

    async def receive(self) -> Part | None:
        """Return the next part of a message; None once the client has closed or violated the protocol."""
        try:
            return await self._taken.receive()
        except trio.EndOfChannel:
            return None

    async def send(self, texts: Sequence[bytes]) -> None:
        """Send text messages, small ones as one write; nothing after a close."""
        frames = map(text_frame, texts)
        whole = sum(map(len, texts)) < _MEDIUM
        for data in (b"".join(frames),) if whole else frames:
            if self._ended:
                return
            await self._write(data)

    async def close(self, code: int, reason: str) -> None:
        if not self._ended:
            self._ended = True
            await self._write(self._reader.send(CloseConnection(code, reason)))

    async def feed(self, data: bytes) -> None:
        if self._ended:
            return
        self._reader.receive_data(data)
        for count, event in enumerate(self._reader.events(), 1):
            if count % EVENTS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if self._ended:
                return
            if not self._budget.take(_payload_size(event)):
                await self.close(CloseReason.POLICY_VIOLATION, "too many small frames")
                self._parts.close()
                return
            await self._handle(event)

    async def _handle(self, event: Event) -> None:
        match event:
            case TextMessage() | BytesMessage():
                await self._hand_on(event)
            case Ping():
                await self._write(self._reader.send(event.response()))
            case CloseConnection(code, _):
                self._ended = True
                if self._reader.state is ConnectionState.REMOTE_CLOSING:
                    await self._write(self._reader.send(event.response()))
                else:  # The client sent malformed frames.
                    await self._write(self._reader.send(CloseConnection(code)))
                self._parts.close()

    async def _hand_on(self, event: TextMessage | BytesMessage) -> None:
        data = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
        if data or event.message_finished:
            try:
                await self._parts.send(Part(data, isinstance(event, TextMessage), event.message_finished))
            except trio.BrokenResourceError:
                self._ended = True


WebSockets = Mapping[str, Callable[[WebSocket], Awaitable[None]]]
"""WebSocket handlers by path."""
NO_WEB_SOCKETS: WebSockets = {}


def _payload_size(event: Event) -> int:
    return len(event.data) if isinstance(event, TextMessage | BytesMessage) else 0


def text_frame(data: bytes) -> bytes:
    """Return a text message as one frame; wsproto would decode and encode each token for it."""
    size = len(data)
    if size < _SHORT:
        return b"%c%c%b" % (_FINAL_TEXT, size, data)
    if size < _MEDIUM:
        return b"%c%c%b%b" % (_FINAL_TEXT, 126, size.to_bytes(2), data)
    return b"%c%c%b%b" % (_FINAL_TEXT, 127, size.to_bytes(8), data)


def asks_for_web_socket(request: h11.Request) -> bool:
    _, headers = client_of(request)
    connection = {token.strip().lower() for token in headers.get("Connection", "").split(",")}
    return (
        request.method == b"GET"
        and request.http_version == b"1.1"
        and headers.get("Upgrade", "").strip().lower() == "websocket"
        and "upgrade" in connection
        and headers.get("Sec-WebSocket-Version", "").strip() == "13"
        and _is_key(headers)
        and not any(name in headers for name in ("Content-Length", "Transfer-Encoding"))
    )


def _is_key(headers: Headers) -> bool:
    key = headers.get("Sec-WebSocket-Key", "").strip()
    return len(key) == _KEY_LENGTH and key.isascii() and key.endswith("==")


# A budget of small WebSocket frames.
#
# An empty frame is six bytes for its sender, but some function calls for the server: a few megabytes of them
# would keep it busy for minutes.

_MOST = 500.0  # Frames that may come at once
_PER_SECOND = 100.0
_PAID_BYTES = 64  # Bytes of payload that pay for a frame


class FrameBudget:
    """Counts the frames of one socket; each payload byte and each second pay for some. `clock`: clock in
    seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = _MOST
        self._filled_at = clock()

    def take(self, size: int) -> bool:
        """Count a frame with `size` bytes of payload; return False once there are too many."""
        now = self._clock()
        paid = (now - self._filled_at) * _PER_SECOND + size / _PAID_BYTES
        self._filled_at = now
        self._left = min(_MOST, self._left + paid) - 1.0
        return self._left >= 0.0
