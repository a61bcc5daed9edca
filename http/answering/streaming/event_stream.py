"""Streamed responses: events of a generation, sent as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

import trio
from quart.wrappers.response import ResponseBody

from greenroom.http.answering.audit.audited_request import audited_request
from greenroom.http.errors.answer_cut import AnswerCutError
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, internal_error

log = get_logger(actor="http")

HEARTBEAT = 10.0
"""Seconds of silence after which a heartbeat is sent."""

NEWS_INTERVAL = 2.0
"""Shortest time in seconds between heartbeats that carry news of the queue or of the prompt."""


class Events(Protocol):
    """A source of events: one generation, or several."""

    async def receive(self) -> InferenceEvent:
        """Return the next event. May be cancelled and called again.

        Raises:
            trio.EndOfChannel: There are no more events.
        """

    def receive_ready(self) -> list[InferenceEvent]:
        """Return the events that are available without waiting."""


class StreamFormatter(Protocol):
    """Formats a stream in the format of its protocol; nothing is sent where a method returns no bytes."""

    @property
    def content_type(self) -> str:
        """The content type of the response, e.g. `SERVER_SENT_EVENTS`."""

    @property
    def finished(self) -> bool:
        """True once the end of the stream has been formatted."""

    @property
    def has_news(self) -> bool:
        """True if a heartbeat would tell a waiting client more than the last one."""

    def opening(self) -> bytes:
        """Return the bytes that are sent with the headers, possibly before any event."""

    def event(self, event: InferenceEvent) -> bytes:
        """Return the bytes that an event sends to the client."""

    def heartbeat(self) -> bytes:
        """Return a keep-alive message; empty if the protocol has none."""

    def failure(self, problem: Problem) -> bytes:
        """Return the end of a response that failed.

        Raises:
            AnswerCutError: The protocol cannot express a failure.
        """


class EventStream(ResponseBody):
    """The body of a streamed response.

    All events that have arrived by the time the client can accept more are sent as one piece.

    Args:
        received: Events that came before the headers were sent.
    """

    def __init__(
        self, events: Events, formatter: StreamFormatter, received: Iterable[InferenceEvent] = ()
    ) -> None:
        self._events = events
        self._formatter = formatter
        self._received = tuple(received)
        self._opened = False
        self._audited = audited_request()
        self._told = -NEWS_INTERVAL

    @property
    def content_type(self) -> str:
        return self._formatter.content_type

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the generation open: the request's resources close it."""

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
                self._record(internal_error())
                piece = self._formatter.failure(internal_error())
        return piece

    async def format(self, events: Sequence[InferenceEvent]) -> bytes:
        """Return the bytes that events send to the client; a subclass may use a worker thread."""
        return b"".join(map(self._formatter.event, events))

    async def _open(self) -> bytes:
        self._opened = True
        opened = self._formatter.opening() + await self.format(self._received)
        return opened + self._heartbeat() if self._formatter.has_news else opened

    async def _next(self, heartbeat_at: float) -> bytes:
        due = min(heartbeat_at, self._told + NEWS_INTERVAL) if self._formatter.has_news else heartbeat_at
        with trio.move_on_at(due) as waiting:
            try:
                events = [await self._events.receive(), *self._events.receive_ready()]
            except trio.EndOfChannel:
                return self._formatter.failure(internal_error())
        if waiting.cancelled_caught:
            return self._heartbeat()
        if (problem := getattr(events[-1], "problem", None)) is not None:  # of Failed, or of a stored run
            self._record(problem)
        return await self.format(events)

    def _record(self, problem: Problem) -> None:
        if self._audited is not None:
            self._audited.record_problem(problem)

    def _heartbeat(self) -> bytes:
        self._told = trio.current_time()
        return self._formatter.heartbeat()


class ThreadedEventStream(EventStream):
    """The body of a streamed response whose formatter is slow, so that it runs on a worker thread."""

    async def format(self, events: Sequence[InferenceEvent]) -> bytes:
        """Return the bytes that events send to the client."""
        return await trio.to_thread.run_sync(self._format_here, events)

    def _format_here(self, events: Sequence[InferenceEvent]) -> bytes:
        return b"".join(map(self._formatter.event, events))
