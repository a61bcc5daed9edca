"""A socket's incoming messages: assembled within limits, and answered in order."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import trio
from wsproto.frame_protocol import CloseReason

from greenroom.http.encoding.encoding import json_ascii
from greenroom.http.encoding.problem_documents import error_object, problem_headers
from greenroom.http.transport.web_socket import Part
from greenroom.schemas.problems import Problem, ProblemError

MAX_WAITING = 16  # Limit of messages that wait while one is answered
PIECE_BYTES = 64 * 1024
"""Size in bytes up to which parts of a message are merged: a client may send it byte by byte."""

NOT_TEXT = Problem(400, "invalid_json", "A message must be a text frame that holds JSON, not a binary one.")
TOO_LARGE = Problem(413, "body_too_large", "The message is larger than this server takes.")
TOO_MANY = Problem(
    429,
    "too_many_messages",
    f"{MAX_WAITING} messages of this socket wait already; one is answered at a time.",
)

Account = Callable[[ExitStack], Callable[[int], None]]
"""A function that returns a callback for charging memory, which takes the total of bytes in use; closing the
resources releases the charge."""


@attrs.frozen
class Refused:
    """A rejected part of a message. `code`: code with which the socket closes, if nothing more can be
    accepted.
    """

    problem: Problem
    code: CloseReason | None = None


@attrs.define(eq=False)
class IncomingMessage:
    """One message, as far as it has arrived. `size`: size in bytes so far; `problem`: reason why it is
    rejected, if so; then none of it is kept.
    """

    pieces: deque[bytearray] = attrs.field(factory=deque)
    size: int = 0
    resources: ExitStack = attrs.field(factory=ExitStack)
    problem: Problem | None = None

    def refuse(self, problem: Problem) -> None:
        self.problem = problem
        self.pieces.clear()
        self.resources.close()


class IncomingMessages:
    """Assembles messages from their parts, and queues those that are complete. `largest`: limit of a message
    in bytes; `account`: function that charges the memory budget of all requests.
    """

    def __init__(self, largest: int, account: Account) -> None:
        self._largest = largest
        self._account = account
        self._open: IncomingMessage | None = None
        self._hold: Callable[[int], None] = lambda size: None
        self._send, self._receive = trio.open_memory_channel[IncomingMessage](MAX_WAITING)

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def add(self, part: Part) -> Refused | None:
        """Add the next part; return the reason if it is rejected."""
        message = self._open
        if message is None:
            message = self._open = IncomingMessage()
            self._hold = self._account(message.resources)
        if not part.is_text:
            return Refused(NOT_TEXT, CloseReason.UNSUPPORTED_DATA)
        message.size += len(part.data)
        if message.size > self._largest:
            return Refused(TOO_LARGE, CloseReason.MESSAGE_TOO_BIG)
        if message.problem is None:
            self._keep(message, part.data)
        if not part.ends:
            return None
        self._open = None
        try:
            self._send.send_nowait(message)
        except trio.WouldBlock:
            message.resources.close()
            return Refused(TOO_MANY)
        return None

    async def next(self) -> IncomingMessage:
        """Wait for the next message, and return it."""
        return await self._receive.receive()

    def close(self) -> int:
        """Release all messages, and return the number of complete ones that were waiting."""
        if self._open is not None:
            self._open.resources.close()
        waiting = 0
        while (message := self._next_ready()) is not None:
            message.resources.close()
            waiting += 1
        return waiting

    def _next_ready(self) -> IncomingMessage | None:
        try:
            return self._receive.receive_nowait()
        except trio.WouldBlock:
            return None

    def _keep(self, message: IncomingMessage, data: bytes) -> None:
        try:
            self._hold(message.size)
        except ProblemError as refused:
            message.refuse(refused.problem)
            return
        if message.pieces and len(message.pieces[-1]) + len(data) <= PIECE_BYTES:
            message.pieces[-1] += data
        else:
            message.pieces.append(bytearray(data))


_DATA = b"data: "
_DONE = b"[DONE]"
_END = b"\n\n"
_FAILED = b'{"type":"response.failed"'
_ENDS = (_FAILED, b'{"type":"response.completed"', b'{"type":"response.incomplete"')
_NOT_FOUND = "previous_response_not_found"


class EventTexts:
    """Splits the stream of one response into events.

    Attributes:
        ended: True if the last event has arrived.
        failed: True if the last event reported a failure.
    """

    def __init__(self) -> None:
        self.ended = False
        self.failed = False
        self._rest = b""

    def feed(self, data: bytes, lane: str | None) -> list[bytes]:
        """Return the events completed by this part of the stream, as JSON."""
        *blocks, self._rest = (self._rest + data).split(_END)
        texts = []
        for block in blocks:
            text = block[block.find(_DATA) + len(_DATA) :]
            if text == _DONE:
                continue
            if text.startswith(_ENDS):
                self.ended, self.failed = True, text.startswith(_FAILED)
            texts.append(
                text if lane is None else b"%b,%b" % (text[:-1], json_ascii({"stream_id": lane})[1:])
            )
        return texts


def error_text(problem: Problem, lane: str | None = None) -> bytes:
    """Return the error event of a message that is not answered."""
    told = problem_headers(problem)
    headers = {name: told[name] for name in ("retry-after",) if name in told}
    return _error_text(problem.status, error_object(problem), headers, lane)


def refusal_text(status: int, headers: Mapping[str, str], document: bytes, lane: str | None) -> bytes:
    error = json.loads(document)["error"]
    told = {name: headers[name] for name in ("retry-after", "x-request-id") if name in headers}
    return _error_text(status, error, told, lane)


def _error_text(status: int, error: dict[str, Any], headers: Mapping[str, str], lane: str | None) -> bytes:
    if error["code"] == _NOT_FOUND:
        status = 400  # OpenAI's sockets use this status.
    event: dict[str, Any] = {"type": "error", "status": status, "error": error}
    if headers:
        event["error"] = {**error, "headers": headers}
    if lane is not None:
        event["stream_id"] = lane
    return json_ascii(event)
