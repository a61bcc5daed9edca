"""A client's socket from handshake to close; its messages are answered one after the other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

import attrs
import trio
from quart import Response
from quart_trio import QuartTrio
from wsproto.frame_protocol import CloseReason

from greenroom.actors.core.fair_share import Pot
from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting import CollectedChoice, OnComplete
from greenroom.http.answering.current_request import request_client, request_owner
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import SERVER_SENT_EVENTS
from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.http.guard.host_guard import client_name
from greenroom.http.guard.keys import Head
from greenroom.http.responses.history_reader import HistoryReader
from greenroom.http.responses.incoming_messages import IncomingMessage, IncomingMessages, Refused, error_text
from greenroom.http.responses.mcp_tools import response_loop
from greenroom.http.responses.posted_message import LocalHistories, PostedMessage, SocketRequest
from greenroom.http.responses.request_parser import ParsedResponseRequest, RequestWithHistory
from greenroom.http.responses.response_object import output_items
from greenroom.http.responses.response_stream import DONE, ResponseFormatter
from greenroom.http.responses.stored_answer import answer_stored
from greenroom.http.transport.accept_loop import connection_capacity
from greenroom.http.transport.request_connection import new_request_id
from greenroom.http.transport.web_socket import WebSocket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, draining
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.stored import StoredItem, StoredTurn, Turns

log = get_logger(actor="http")

UNSENT_BYTES = 8 * MEGABYTE  # Bytes that the unsent events of all sockets may take together


@attrs.frozen
class SocketLimits:
    """Time limits of a socket, in seconds. `age`: lifetime of a socket (OpenAI's guide, and Open Responses
    2026-04-24); `idle`: time between an answer and the next message, in which tools run and people think.
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
    """Serves `/v1/responses` over WebSocket: each message is answered like a POST request."""

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
        most, _ = connection_capacity(services.settings.max_connections)
        self._open = Pot(max(1, most // 4))

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
    """Answers the messages of one socket. `messages`: queue of the socket's messages, still empty."""

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
        for _ in range(unanswered):
            self._record(problem)
        if problem is AGED:
            await self._socket.send([error_text(problem)])
            await self._close(CloseReason.NORMAL_CLOSURE, problem.code)
        else:
            await self._socket.send([error_text(problem)] * unanswered)
            await self._close(CloseReason.GOING_AWAY, problem.code)

    async def _close(self, code: CloseReason, reason: str) -> None:
        await self._socket.close(code, reason)
        self._tasks.cancel(reason)


async def answer_on_socket(
    services: RouteServices, histories: HistoryReader, request: ParsedResponseRequest, socket: SocketRequest
) -> Response:
    """Return the stream of a response; one that is not stored is kept for the socket's next requests. Raises
    ProblemError: the request is rejected, or failed before its status was sent.
    """
    if request.stored and socket.generates:
        return await answer_stored(services, histories, request, stream=True)
    known = socket.history() if request.conversation is None else None
    complete = await histories.complete(request, request_owner(), request_client(), known)
    loop = await response_loop(services, request, complete)
    history = _HistoryWriter(socket, complete, request.formatter)
    if not socket.generates:
        return await _prepare(services, history)
    on_complete = OnComplete(history.on_complete, DONE)
    return await answer_request(
        services, [complete.request], request.formatter, stream=True, on_complete=on_complete, loop=loop
    )


@attrs.frozen
class _HistoryWriter:
    """Adds a turn to the history of its WebSocket, which alone remembers it."""

    socket: SocketRequest
    complete: RequestWithHistory
    formatter: ResponseFormatter

    async def on_complete(self, _model: str, choices: Sequence[CollectedChoice]) -> Problem | None:
        [choice] = choices
        echo, ident = self.formatter.echo, self.formatter.answer_id
        items = output_items(choice, ident, echo.calls, encrypts_reasoning=echo.encrypts_reasoning)
        self.keep(
            tuple(StoredItem(str(item["id"]), json.dumps(item)) for item in items), choice.system_prompt
        )
        return None

    def keep(self, output: tuple[StoredItem, ...], system_prompt: str | None) -> None:
        """Add the turn, with the model's output, to the history. `system_prompt`: see `Turns`; the prompt at
        the conversation's start takes precedence.
        """
        before, turn = self.complete.turns, StoredTurn((*self.complete.stored_input, *output))
        started_with = system_prompt if before.system_prompt is None else before.system_prompt
        turns = Turns((*before.turns, turn), before.left_out, started_with)
        self.socket.keep(self.formatter.answer_id, turns)


async def _prepare(services: RouteServices, history: _HistoryWriter) -> Response:
    """Return the events of a response without output, which later requests can continue."""
    request = await services.with_files(history.complete.request)
    await count_prompt_tokens(services.refs.pool, request)
    history.keep((), None)
    events = _OneByOne(history.formatter.stream(str(request.key)).without_output())
    response = Response(events, content_type=SERVER_SENT_EVENTS)
    response.timeout = None
    return response


class _OneByOne:
    """Asynchronous iterator over events, each of which is made when the last one has been sent."""

    def __init__(self, events: Iterator[bytes]) -> None:
        self._events = events

    def __aiter__(self) -> _OneByOne:
        return self

    async def __anext__(self) -> bytes:
        for event in self._events:
            return event
        raise StopAsyncIteration
