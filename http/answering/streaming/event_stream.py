"""A streamed answer: events of a generation, pulled and sent as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

import structlog
import trio
from quart.wrappers.response import ResponseBody

from greenroom.http.answering.encoding.json_encoding import json_ascii
from greenroom.schemas.events import InferenceEvent
from greenroom.schemas.problems import Problem, internal_error

log = structlog.get_logger(actor="http")

HEARTBEAT = 10.0
"""Seconds of silence after which a client is shown that the answer is still coming."""

SERVER_SENT_EVENTS = "text/event-stream; charset=utf-8"


def data_event(document: Mapping[str, object]) -> bytes:
    """Return a document as a server-sent event."""
    return b"data: %b\n\n" % json_ascii(document)


class AnswerCutError(Exception):
    """An answer that has begun cannot be completed, and its form has no words for that: it is cut off."""


class Events(Protocol):
    """A source of events: a generation, or several."""

    async def receive(self) -> InferenceEvent:
        """Return the next event. May be cancelled and called again.

        Raises:
            trio.EndOfChannel: There is none any more.
        """

    def receive_ready(self) -> list[InferenceEvent]:
        """Return the events that need not be waited for."""


class StreamFormatter(Protocol):
    """Formats a stream in the words of its protocol; where it returns no bytes, nothing is sent."""

    @property
    def content_type(self) -> str:
        """Of the response, e.g. `SERVER_SENT_EVENTS`."""

    @property
    def finished(self) -> bool:
        """Whether the end of the stream has been formatted."""

    def opening(self) -> bytes:
        """Return what goes out with the headers, before anything may be known of the answer."""

    def event(self, event: InferenceEvent) -> bytes:
        """Return what the client is to know of an event."""

    def heartbeat(self) -> bytes:
        """Return what shows that the answer is still coming; nothing in protocols that have no such thing."""

    def failure(self, problem: Problem) -> bytes:
        """Return the end of an answer that cannot be completed.

        Raises:
            AnswerCutError: There is no such end.
        """


class EventStream(ResponseBody):
    """The body of a streamed response.

    All events that are there when the client can take more go out as one piece.

    Args:
        received: Events that came before the headers went out.
    """

    def __init__(
        self, events: Events, formatter: StreamFormatter, received: Iterable[InferenceEvent] = ()
    ) -> None:
        self._events = events
        self._formatter = formatter
        self._received = tuple(received)
        self._opened = False

    @property
    def content_type(self) -> str:
        """Of the response."""
        return self._formatter.content_type

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the generation to the request's resources, which close it."""

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        piece, heartbeat_at = b"", trio.current_time() + HEARTBEAT
        while not piece:
            if self._opened and self._formatter.finished:
                raise StopAsyncIteration
            try:
                piece = await (self._next(heartbeat_at) if self._opened else self._open())
                if not piece and trio.current_time() >= heartbeat_at:
                    heartbeat_at += HEARTBEAT
            except AnswerCutError:
                raise
            except Exception:
                log.exception("stream crashed")
                piece = self._formatter.failure(internal_error())
        return piece

    async def format(self, events: Sequence[InferenceEvent]) -> bytes:
        """Return what the client is to know of events; a subclass may take another thread for it."""
        return b"".join(map(self._formatter.event, events))

    async def _open(self) -> bytes:
        self._opened = True
        return self._formatter.opening() + await self.format(self._received)

    async def _next(self, heartbeat_at: float) -> bytes:
        with trio.move_on_at(heartbeat_at) as waiting:
            try:
                events = [await self._events.receive(), *self._events.receive_ready()]
            except trio.EndOfChannel:
                return self._formatter.failure(internal_error())
        return self._formatter.heartbeat() if waiting.cancelled_caught else await self.format(events)


class ThreadedEventStream(EventStream):
    """The body of a streamed response whose formatter takes long: it works on another thread."""

    async def format(self, events: Sequence[InferenceEvent]) -> bytes:
        """Return what the client is to know of events."""
        return await trio.to_thread.run_sync(self._format_here, events)

    def _format_here(self, events: Sequence[InferenceEvent]) -> bytes:
        return b"".join(map(self._formatter.event, events))
