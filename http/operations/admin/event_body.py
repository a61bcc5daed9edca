"""Bodies of server-sent events for operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType

import trio
from quart import Response
from quart.wrappers.response import ResponseBody

from greenroom.http.answering.requests.current_request import attend_caller
from greenroom.http.encoding.json_encoding import json_ascii
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS
from greenroom.http.guard.keys.key_ring import REVOKED

HEARTBEAT = 10.0
"""Seconds of silence after which a comment is sent, so that proxies and clients see life."""


class EventBody(ResponseBody):
    """A body of events from a function that returns the next ones.

    Args:
        receive: Function that returns the bytes of the next events, or None at the end. It may be cancelled
            and called again without losing an event.
    """

    def __init__(self, receive: Callable[[], Awaitable[bytes | None]]) -> None:
        self._receive = receive
        self._opened = False
        self._ended = False
        self._waiting = trio.CancelScope()

    def end(self) -> None:
        """End the body at once, with an event that the operator's key is no longer valid."""
        self._ended = True
        self._waiting.cancel("the key was revoked")

    async def __aenter__(self) -> EventBody:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the source open: the request's resources close it."""

    def __aiter__(self) -> EventBody:
        return self

    async def __anext__(self) -> bytes:
        if not self._opened:
            self._opened = True
            return b": hello\n\n"  # the headers are sent with the first piece
        if self._ended:
            raise StopAsyncIteration
        piece: bytes | None = b": no news\n\n"
        with trio.move_on_after(HEARTBEAT) as self._waiting:
            piece = await self._receive()
        if self._ended:
            return named_event("error", {"error": {"code": REVOKED.code, "message": REVOKED.detail}})
        if piece is None:
            raise StopAsyncIteration
        return piece


def event_response(receive: Callable[[], Awaitable[bytes | None]]) -> Response:
    """Return a response with the events that a function returns (see `EventBody`)."""
    headers = {"content-type": SERVER_SENT_EVENTS, "cache-control": "no-cache", "x-accel-buffering": "no"}
    body = EventBody(receive)
    attend_caller(body.end)
    response = Response(body, headers=headers)
    response.timeout = None
    return response


def named_event(name: str, document: Mapping[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json_ascii(document))
