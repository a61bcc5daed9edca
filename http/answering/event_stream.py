"""Streamed responses: events of generations as server-sent events, with progress, news and timing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import attrs
import trio
from quart import Response
from quart.wrappers.response import ResponseBody

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.requests.generation import RequestEvents
from greenroom.http.answering.current_request import audited_request, request_resources
from greenroom.http.encoding.encoding import json_ascii
from greenroom.http.encoding.problem_documents import AnswerCutError
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    PromptText,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, draining, internal_error

log = get_logger(actor="http")

HEARTBEAT = 10.0  # Seconds of silence after which a heartbeat is sent

NEWS_INTERVAL = 2.0
"""Shortest time in seconds between heartbeats that carry news of the queue or of the prompt."""


class Events(Protocol):
    async def receive(self) -> InferenceEvent:
        """Return the next event. May be cancelled and called again. Raises trio.EndOfChannel: there are no
        more events.
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
        """Return the end of a response that failed. Raises AnswerCutError: the protocol cannot express a
        failure.
        """


class StreamBody(ResponseBody):
    """The body of a response whose source the request's resources close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the source open."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> bytes: ...


class EventStream(StreamBody):
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
        return await trio.to_thread.run_sync(b"".join, map(self._formatter.event, events))


class ParallelGenerations:
    """Runs generations concurrently while it is entered; the failure of one is the last event of all."""

    def __init__(self, generations: Sequence[RequestEvents]) -> None:
        self._generations = generations
        self._has_failed = False
        self._nursery = trio.open_nursery()
        self._sender, self._receiver = trio.open_memory_channel[InferenceEvent](0)

    async def receive(self) -> InferenceEvent:
        """Return the next event of any generation. May be cancelled and called again. Raises
        trio.EndOfChannel: all have ended.
        """
        return self._noticed(await self._receiver.receive())

    def receive_ready(self) -> list[InferenceEvent]:
        ready: list[InferenceEvent] = []
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while not self._has_failed:
                ready.append(self._noticed(self._receiver.receive_nowait()))
        return ready

    def _noticed(self, event: InferenceEvent) -> InferenceEvent:
        self._has_failed = isinstance(event, Failed)
        return event

    async def __aenter__(self) -> ParallelGenerations:
        nursery = await self._nursery.__aenter__()
        with self._sender:
            for index, generation in enumerate(self._generations):
                nursery.start_soon(self._pull, index, generation, self._sender.clone())
        self._cancel = nursery.cancel_scope.cancel
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._cancel("the answer has ended")
        return await self._nursery.__aexit__(kind, error, trace)

    async def _pull(
        self, index: int, generation: RequestEvents, sender: trio.MemorySendChannel[InferenceEvent]
    ) -> None:
        with sender:
            async for event in generation:
                if isinstance(event, PromptText | TextDelta | ReasoningDelta | ToolCallDelta | Finished):
                    event = attrs.evolve(event, index=index * generation.request.choices + event.index)
                await sender.send(event)


class ParallelEventStream(EventStream):
    """The body of a streamed response to several prompts."""

    def __init__(self, generations: ParallelGenerations, formatter: StreamFormatter) -> None:
        super().__init__(generations, formatter)
        self._generations = generations

    async def __aenter__(self) -> Self:
        await self._generations.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._generations.__aexit__(kind, error, trace)


class ProgressStream(StreamBody):
    """The body of a response that sends the events of a reply.

    Args:
        first: Event that came before the headers were sent.
        encode: Function that returns an event's bytes; no bytes for an event that is not sent.
    """

    def __init__(self, replies: ReplyStream[Any], first: Any, encode: Callable[[Any], bytes]) -> None:
        self._replies = replies
        self._encode = encode
        self._latest = encode(first)
        self._begun = False
        self._audited = audited_request()

    async def __anext__(self) -> bytes:
        """Return the next event; after a silence, the last one again."""
        if not self._begun:
            self._begun = True
            return self._latest
        while True:
            with trio.move_on_after(HEARTBEAT):
                try:
                    event = await self._replies.receive()
                except trio.EndOfChannel:
                    raise StopAsyncIteration from None
                if isinstance(event, Failed) and self._audited is not None:
                    self._audited.record_problem(event.problem)
                if not (encoded := self._encode(event)):
                    continue
                self._latest = encoded
            return self._latest


async def progress_response(
    ref: Ref[Any], message: Any, encode: Callable[[Any], bytes], content_type: str
) -> Response:
    """Return a response that sends the events of an actor's reply. Raises ProblemError: the first event is a
    failure, or the actor has stopped.
    """
    try:
        replies = await ref.stream(message)
    except ActorStopped:
        raise ProblemError(draining()) from None
    request_resources().callback(replies.close)
    first = await replies.receive()
    if isinstance(first, Failed):
        raise ProblemError(first.problem)
    headers = {"content-type": content_type, "cache-control": "no-cache", "x-accel-buffering": "no"}
    response = Response(ProgressStream(replies, first, encode), headers=headers)
    response.timeout = None
    return response


STATUS_TIMEOUT = 2.0  # Longest wait for a status, in seconds


async def wait_for_first_event(events: Events, status_timeout: float) -> list[InferenceEvent]:
    """Wait for the first event of output, at most `status_timeout` seconds.

    Returns:
        The events so far.

    Raises:
        ProblemError: The request was refused, or failed before anything was sent.
    """
    received: list[InferenceEvent] = []
    with trio.move_on_after(status_timeout):
        while not received or isinstance(received[-1], QueueStatus | Admitted):
            received.append(_unless_failed(await events.receive()))
    return received


async def wait_for_admission(all_events: Sequence[Events], status_timeout: float) -> None:
    """Wait until all of several requests are admitted, at most `status_timeout` seconds. Raises ProblemError:
    one of them was refused.
    """
    with trio.move_on_after(status_timeout):
        for events in all_events:
            while not isinstance(_unless_failed(await events.receive()), Admitted):
                pass


def _unless_failed(event: InferenceEvent) -> InferenceEvent:
    if isinstance(event, Failed):
        raise ProblemError(event.problem)
    return event


class WaitingNews:
    """The latest news of one response, which formatters add to the messages that their heartbeats send.

    Attributes:
        fresh: True if there are news that no message has carried yet.
    """

    def __init__(self) -> None:
        self.fresh = False
        self._latest: QueueStatus | PromptProgress | None = None

    @property
    def waits(self) -> bool:
        """True while the latest news of the request is its place in the queue of its model."""
        return isinstance(self._latest, QueueStatus)

    def record(self, event: InferenceEvent) -> None:
        """Record an event of the response; the first one of the answer ends the news."""
        if isinstance(event, QueueStatus | PromptProgress):
            self._latest, self.fresh = event, True
        elif self._latest is not None and not isinstance(event, Admitted):
            self._latest, self.fresh = None, False

    def members(self) -> bytes:
        """Return the JSON of the latest news as further members of an object; empty if there are none."""
        self.fresh = False
        return news_members(self._latest)


class TellsNews:
    """Part of a stream formatter whose heartbeats tell a client why it waits."""

    def __init__(self) -> None:
        self._news = WaitingNews()

    @property
    def has_news(self) -> bool:
        return self._news.fresh


def news_members(news: QueueStatus | PromptProgress | None) -> bytes:
    """Return the JSON of news as further members of an object, which begin with a comma.

    The progress has the fields of llama.cpp's server.
    """
    match news:
        case QueueStatus():
            return b',"queue_status":%b' % json_ascii(attrs.asdict(news))
        case PromptProgress(processed, total, cached, seconds):
            numbers = (total, cached, processed, round(seconds * 1e3))
            return b',"prompt_progress":{"total":%d,"cache":%d,"processed":%d,"time_ms":%d}' % numbers
        case None:
            return b""
