"""The messages that a socket's client sends: put together within bounds, and answered in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

import attrs
import trio
from wsproto.frame_protocol import CloseReason

from greenroom.http.transport.web_socket import Part
from greenroom.schemas.problems import Problem, ProblemError

MAX_WAITING = 16
"""Messages that wait while one is answered."""
PIECE_BYTES = 64 * 1024
"""Of a message, which are kept as one: a client may send it byte by byte."""

NOT_TEXT = Problem(400, "invalid_json", "A message must be a text frame that holds JSON, not a binary one.")
TOO_LARGE = Problem(413, "body_too_large", "The message is larger than this server takes.")
TOO_MANY = Problem(
    429,
    "too_many_messages",
    f"{MAX_WAITING} messages of this socket wait already; one is answered at a time.",
)

Account = Callable[[ExitStack], Callable[[int], None]]
"""Returns what is told how many bytes something holds until its resources are closed."""


@attrs.frozen
class Refused:
    """A part that was not taken.

    Args:
        code: That the socket closes with, if nothing more can be taken either.
    """

    problem: Problem
    code: CloseReason | None = None


@attrs.define(eq=False)
class IncomingMessage:
    """One message, as far as it has come.

    Args:
        pieces: Of its text.
        resources: Closed when it is held no more.
        problem: Why it is not answered, if so; then nothing of it is kept.
    """

    pieces: deque[bytearray] = attrs.field(factory=deque)
    size: int = 0
    resources: ExitStack = attrs.field(factory=ExitStack)
    problem: Problem | None = None

    def refuse(self, problem: Problem) -> None:
        """Keep nothing of it."""
        self.problem = problem
        self.pieces.clear()
        self.resources.close()


class IncomingMessages:
    """Puts messages together from their parts, and hands them on one by one.

    Args:
        largest: Bytes of a message.
        account: Of what all requests hold.
    """

    def __init__(self, largest: int, account: Account) -> None:
        self._largest = largest
        self._account = account
        self._open: IncomingMessage | None = None
        self._hold: Callable[[int], None] = lambda size: None
        self._send, self._receive = trio.open_memory_channel[IncomingMessage](MAX_WAITING)

    @property
    def is_open(self) -> bool:
        """Whether a message has begun that is not complete."""
        return self._open is not None

    def add(self, part: Part) -> Refused | None:
        """Take the next part, and say so if that is refused."""
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
        """Hold nothing any more, and return how many messages were waiting."""
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
