"""Quart-Trio's connection with resources per request, and fair scheduling of uploads."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import attrs
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable, ConnectionState
from quart.wrappers import Request
from quart_trio.asgi import TrioASGIHTTPConnection
from quart_trio.wrappers.request import TrioBody, TrioRequest
from werkzeug.datastructures import Headers

from greenroom.http.encoding.problem_documents import AnswerCutError
from greenroom.schemas.messages.requests import TraceContext

TURN_BYTES = 64 * 1024  # Bytes of a body that are passed on per turn; smaller bodies wait for no turn

ANSWERED = "answered"  # Key in the state of a scope, true once the end of the response is sent

_TURN: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("upload_turn")


class RequestConnection(TrioASGIHTTPConnection):
    """Handles one request from its first byte to the last byte of its response.

    Bodies are parsed as they arrive. To keep each pass of the event loop short, all concurrent uploads
    together pass on `TURN_BYTES` per pass; a generated token takes several passes to reach its client.
    """

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer the request, and release its resources even if the response never started."""
        with ExitStack() as resources:
            # Optional in ASGI: Quart's test client sends none.
            state = self.scope.setdefault("state", ConnectionState({}))
            state["resources"], state[ANSWERED] = resources, False
            await super().__call__(receive, send)

    async def handle_request(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        """Answer the request; an aborted response is left incomplete, so that the connection closes."""
        if isinstance(request.body, FlowControlledBody):
            request.body.ask = self.scope["state"].get(ASK_FOR_BODY)
        try:
            await super().handle_request(nursery, request, self._marking(request, send))
        except AnswerCutError:
            nursery.cancel_scope.cancel("the answer was cut off")

    def _marking(self, request: Request, send: ASGISendCallable) -> ASGISendCallable:
        """Return a function that sends an event, and marks the request as answered with the last one.

        It is no coroutine function, because it runs once per token.
        """
        state = self.scope["state"]

        def send_marked(event: Any) -> Awaitable[None]:
            # A client may leave as soon as it has the end, before the send returns.
            if not event.get("more_body") and event["type"] == "http.response.body":
                state[ANSWERED] = True
                if isinstance(request.body, FlowControlledBody):
                    request.body.discard()
            return send(event)

        return send_marked

    async def handle_messages(  # type: ignore[override]
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        """Pass on the parts of the body in turn with other uploads, as fast as they are read."""
        received = 0

        async def receive_in_turn() -> ASGIReceiveEvent:
            nonlocal received
            paced = request.body if isinstance(request.body, FlowControlledBody) else None
            if paced is not None:
                await paced.wait_for_room()
            event = await receive()
            if event["type"] == "http.request":
                received += len(event["body"])
                if paced is not None:
                    if paced.is_unwanted:
                        event["body"] = b""
                    paced.expect(len(event["body"]))
                if received >= TURN_BYTES:
                    received = 0
                    await _wait_for_turn()
            return event

        await super().handle_messages(nursery, request, receive_in_turn)


async def _wait_for_turn() -> None:
    """Wait until no other upload runs in this pass of the event loop."""
    try:
        turn = _TURN.get()
    except LookupError:
        turn = trio.Lock()
        _TURN.set(turn)
    async with turn:
        await trio.lowlevel.checkpoint()


HELD_BYTES = 256 * 1024  # Unread bytes of a body at which the socket is no longer read

ASK_FOR_BODY = "ask_for_body"
"""Key in the state of a scope, of the function that asks a waiting client for its body."""


class FlowControlledBody(TrioBody):
    """A request body that counts its unread bytes; the reader limits its size.

    Attributes:
        ask: Function that asks a waiting client for its body, before the first read; None for none.
        is_unwanted: True once the request is answered: what still comes is dropped.
    """

    ask: Callable[[], Awaitable[None]] | None = None
    is_unwanted = False

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(None, None)
        self._held = 0
        self._taken = trio.Event()

    async def __anext__(self) -> bytes:
        """Return the data received since the last call. Raises StopAsyncIteration: the body is complete."""
        if self.ask is not None:
            ask, self.ask = self.ask, None
            await ask()
        part = await super().__anext__()
        # Counted here, since the body's internal buffer differs between versions of Quart.
        self._held -= len(part)
        self._taken.set()
        return part

    def expect(self, size: int) -> None:
        self._held += size

    def discard(self) -> None:
        """Drop what is unread, and make room for the rest."""
        self.clear()
        self.is_unwanted, self._held = True, 0
        self._taken.set()

    async def wait_for_room(self) -> None:
        """Wait until the unread bytes are within the limit."""
        while self._held > HELD_BYTES:
            self._taken = trio.Event()
            await self._taken.wait()


class FlowControlledRequest(TrioRequest):
    """Quart-Trio's request with a `FlowControlledBody`."""

    body_class = FlowControlledBody
    # Quart binds its routes to the name, and fails on one that DNS does not allow, before any check.
    host = "localhost"


def new_request_id() -> str:
    """Return a new request id for headers, logs and actor messages."""
    return f"req_{uuid4().hex}"


def request_id_headers(request_id: str) -> dict[str, str]:
    """Return the response headers with the request id, for both OpenAI's and Anthropic's clients."""
    return {"x-request-id": request_id, "request-id": request_id}


_NAMES = ("X-Client-Request-Id", "X-Request-Id")
"""Headers with a client's own request id: that of OpenAI's clients first, then that of proxies."""
LOG_FIELDS = "log_fields"
"""Key in the state of a request's scope: function that returns what the application knows, for the log."""
_IDENT = re.compile(r"[ -~]{1,128}")
_MEMBER = re.compile(r"[ \t]*([a-z0-9][-a-z0-9_*/@]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~])?[ \t]*")
_LONGEST_STATE = 512


@attrs.frozen
class ClientIds:
    """Ids that a client gives its own request; wrong ones are ignored.

    Args:
        request_id: Its request id, of 1 to 128 printable ASCII characters; None without one.
        trace: Its place in a trace; None without one.
    """

    request_id: str | None = None
    trace: TraceContext | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        fields = {} if self.request_id is None else {"client_request_id": self.request_id}
        return fields if self.trace is None else {**fields, "trace_id": self.trace.traceparent.split("-")[1]}

    @property
    def headers(self) -> dict[str, str]:
        fields = {} if self.request_id is None else {"x-client-request-id": self.request_id}
        return fields if self.trace is None else {**fields, "traceparent": self.trace.traceparent}


def client_ids(headers: Headers) -> ClientIds:
    """Return the ids in the headers of a request."""
    named = next((value for name in _NAMES if _IDENT.fullmatch(value := headers.get(name, ""))), None)
    try:
        trace = TraceContext(headers["traceparent"])
    except (KeyError, ValueError):
        return ClientIds(named)
    state = ",".join(headers.getlist("tracestate"))
    is_known = len(state) <= _LONGEST_STATE and all(map(_MEMBER.fullmatch, state.split(",")))
    return ClientIds(named, attrs.evolve(trace, tracestate=state) if is_known else trace)


def log_fields_of(state: object) -> dict[str, Any]:
    """Return the log fields in a request's state: the client's ids, and what the application knows of it."""
    known = state if isinstance(state, dict) else {}
    ids, fields = known.get("client_ids"), known.get(LOG_FIELDS)
    return {**(ids.log_fields if isinstance(ids, ClientIds) else {}), **(fields() if fields else {})}
