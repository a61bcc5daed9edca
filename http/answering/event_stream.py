"""A streamed answer: events of a generation, pulled and sent as server-sent events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol

import structlog
import trio
from quart.wrappers.response import ResponseBody

from greenroom.schemas.events import InferenceEvent
from greenroom.schemas.problems import Problem, internal_error

log = structlog.get_logger(actor="http")

KEEP_ALIVE = 10.0
"""Seconds of silence after which the client is told that the answer is still coming."""


class Events(Protocol):
    """Where events come from."""

    async def receive(self) -> InferenceEvent:
        """The next event. May be cancelled and called again."""

    def receive_ready(self) -> list[InferenceEvent]:
        """Those that are there already."""


class StreamFormatter(Protocol):
    """What knows a protocol's stream."""

    @property
    def finished(self) -> bool:
        """Whether the client has been told the end."""

    def opening(self) -> bytes:
        """What comes first."""

    def keep_alive(self) -> bytes:
        """What is said in place of nothing."""

    def event(self, event: InferenceEvent) -> bytes:
        """What is said about an event."""

    def failure(self, problem: Problem) -> bytes:
        """What is said if the answer cannot be completed."""


class EventStream(ResponseBody):
    """The body of a streamed response.

    All that is there when the client can take more goes out as one piece.

    Args:
        begun: Events that were received before the headers went out.
    """

    def __init__(
        self, events: Events, formatter: StreamFormatter, begun: Iterable[InferenceEvent] = ()
    ) -> None:
        self._events = events
        self._formatter = formatter
        self._begun = deque(begun)
        self._opened = False

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The request's own holdings close the generation."""

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        if not self._opened:
            self._opened = True
            begun = b"".join(map(self._formatter.event, self._begun))
            return self._formatter.opening() + begun
        piece, silent_until = b"", trio.current_time() + KEEP_ALIVE
        while not piece:
            if self._formatter.finished:
                raise StopAsyncIteration
            try:
                piece = await self._next(silent_until)
            except Exception:
                log.exception("stream crashed")
                piece = self._formatter.failure(internal_error())
        return piece

    async def _next(self, silent_until: float) -> bytes:
        with trio.move_on_at(silent_until):
            try:
                event = await self._events.receive()
            except trio.EndOfChannel:
                return self._formatter.failure(internal_error())
            tell = self._formatter.event
            return tell(event) + b"".join(map(tell, self._events.receive_ready()))
        return self._formatter.keep_alive()
