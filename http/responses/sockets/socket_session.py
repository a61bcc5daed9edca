"""A client's socket from handshake to close; its messages are answered one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import count

import attrs
import trio
from quart_trio import QuartTrio
from wsproto.frame_protocol import CloseReason

from greenroom.actors.core.pot import Pot
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.guard.answer_account import AnswerAccount
from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.keys.door import Head
from greenroom.http.responses.sockets.event_texts import error_text
from greenroom.http.responses.sockets.incoming_messages import IncomingMessage, IncomingMessages, Refused
from greenroom.http.responses.sockets.local_histories import LocalHistories
from greenroom.http.responses.sockets.posted_message import PostedMessage
from greenroom.http.responses.sockets.socket_request import SocketRequest
from greenroom.http.transport.request_id import new_request_id
from greenroom.http.transport.web_socket import WebSocket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, draining
from greenroom.schemas.settings.setting_fields import MEGABYTE

log = get_logger(actor="http")

UNSENT_BYTES = 8 * MEGABYTE
"""Bytes that the unsent events of all sockets may take together."""


@attrs.frozen
class SocketLimits:
    """Time limits of a socket, in seconds.

    Args:
        age: Lifetime of a socket (OpenAI's guide, and Open Responses 2026-04-24).
        idle: Time between an answer and the next message, in which tools run and people think.
        message: Time for a message to arrive completely.
    """

    age: float = 3600.0
    idle: float = 600.0
    message: float = 60.0


AGED = Problem(
    400,
    "websocket_connection_limit_reached",
    "This socket has been open for too long. Open another one to go on.",
)
TOO_MANY = Problem(
    503,
    "too_many_connections",
    "You have too many WebSockets open beside those of others. Close some, or try again.",
    retry_after=10,
)
LATE = Problem(408, "request_timeout", "The message did not arrive in time.")


class ResponseSockets:
    """Serves `/v1/responses` over WebSocket: each message is answered like a POST request.

    Args:
        app: The application with the routes.
        services: Services of its routes.
    """

    def __init__(self, app: QuartTrio, services: RouteServices, limits: SocketLimits | None = None) -> None:
        self._app = app
        # Beside the answers themselves, which are charged like those of other requests.
        self._unsent = AnswerAccount(UNSENT_BYTES)
        self._bodies = services.bodies
        self._guard = services.hosts
        self._door = services.door
        self._limits = limits or SocketLimits()
        self._histories = LocalHistories()
        self._numbers = count()
        self._audit = services.refs.audit
        # Sockets may stay idle for minutes; together they must leave connections to everybody else.
        self._open = Pot(max(1, services.settings.max_connections // 4))

    async def __call__(self, socket: WebSocket) -> None:
        """Serve one socket until it is closed."""
        refusal = self._guard.find_problem(socket.headers, socket.scheme)
        if refusal is not None:
            await socket.refuse(refusal)
            return
        client = socket.client
        head = Head("GET", socket.path, socket.headers, client[0] if client else None)
        try:
            caller = await self._door.admit(head)
        except ProblemError as refused:
            await socket.refuse(refused.problem)
            return
        name = caller.owner if caller.has_key else client_name(socket.headers, head.address)
        if self._open.room(name) <= 0:
            await socket.refuse(TOO_MANY)
            return
        number = next(self._numbers)
        self._open.take(name)
        try:
            messages = IncomingMessages(self._bodies.largest, self._bodies.account)
            post = partial(PostedMessage, self._app, self._unsent, socket)
            limits, record = self._limits, self._record
            session = SocketSession(post, socket, number, messages, self._histories, limits, record)
            await session.run()
        finally:
            self._open.give_back(name)
            self._histories.forget(number)

    def _record(self, problem: Problem) -> None:
        """Record a message that no route gets to see."""
        if self._audit is not None:
            ident = new_request_id()
            self._audit.book.refuse(ident, "responses", "WS /v1/responses", problem.status, problem.code)


class SocketSession:
    """Answers the messages of one socket.

    Args:
        post: Makes the request of a message.
        number: The socket's number.
        messages: Queue of the socket's messages, still empty.
        record: Records the problem of a message that is not posted.
    """

    def __init__(
        self,
        post: Callable[[IncomingMessage, SocketRequest], PostedMessage],
        socket: WebSocket,
        number: int,
        messages: IncomingMessages,
        histories: LocalHistories,
        limits: SocketLimits,
        record: Callable[[Problem], None],
    ) -> None:
        self._post = post
        self._record = record
        self._limits = limits
        self._socket = socket
        self._number = number
        self._histories = histories
        self._messages = messages
        self._is_answering = False
        self._end: Problem | None = None
        self._touched = trio.current_time()
        self._tasks = trio.CancelScope()

    async def run(self) -> None:
        """Serve the socket; return when either side has closed and all tasks have ended."""
        await self._socket.accept()
        log.info("socket opened", path=self._socket.path)
        try:
            with self._tasks:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._answer_messages)
                    nursery.start_soon(self._wait_for_end)
                    await self._receive_messages()
                    nursery.cancel_scope.cancel("the client has closed")
        finally:
            self._messages.close()
            log.info("socket closed", path=self._socket.path)

    async def _receive_messages(self) -> None:
        began = 0.0
        while True:
            deadline = began + self._limits.message if self._messages.is_open else math.inf
            with trio.move_on_at(deadline) as waiting:
                part = await self._socket.receive()
            if waiting.cancelled_caught:
                await self._refuse(Refused(LATE, CloseReason.POLICY_VIOLATION))
                return
            if part is None:
                return
            if not self._messages.is_open:
                began = trio.current_time()
            self._touched = trio.current_time()
            refused = self._messages.add(part)
            if refused is not None:
                await self._refuse(refused)

    async def _refuse(self, refused: Refused) -> None:
        self._record(refused.problem)
        await self._socket.send([error_text(refused.problem)])
        if refused.code is not None:
            await self._close(refused.code, refused.problem.code)

    async def _answer_messages(self) -> None:
        while True:
            message = await self._messages.next()
            if message.problem is not None:
                self._record(message.problem)
                await self._socket.send([error_text(message.problem)])
                continue
            self._is_answering = True
            request = SocketRequest(self._number, self._histories)
            await self._post(message, request).answer()
            self._is_answering = False
            self._touched = trio.current_time()
            if self._end is not None:
                await self._finish(self._end)

    async def _wait_for_end(self) -> None:
        """Wait until the server drains or the socket is too old or idle; close after the current answer."""
        aged_at = trio.current_time() + self._limits.age
        while self._end is None:
            idle_since = trio.current_time() if self._is_answering else self._touched
            with trio.move_on_at(min(aged_at, idle_since + self._limits.idle)):
                await self._socket.draining.wait()
            now = trio.current_time()
            if self._socket.draining.is_set():
                self._end = draining()
            elif now >= aged_at:
                self._end = AGED
            elif not self._is_answering and now >= self._touched + self._limits.idle:
                await self._close(CloseReason.NORMAL_CLOSURE, "idle")
        if not self._is_answering:
            await self._finish(self._end)

    async def _finish(self, problem: Problem) -> None:
        """Close the socket, with one error event if it is too old, else with one per unanswered message."""
        unanswered = self._messages.close()
        if problem is AGED:
            await self._socket.send([error_text(problem)])
            await self._close(CloseReason.NORMAL_CLOSURE, problem.code)
        else:
            await self._socket.send([error_text(problem)] * unanswered)
            await self._close(CloseReason.GOING_AWAY, problem.code)

    async def _close(self, code: CloseReason, reason: str) -> None:
        await self._socket.close(code, reason)
        self._tasks.cancel(reason)
