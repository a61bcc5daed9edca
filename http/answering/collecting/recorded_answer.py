"""Answers that are recorded when they are complete, and whose end tells the client that they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs
import structlog

from greenroom.http.answering.collecting.collected_answer import ChoiceCollector, CollectedChoice, collect
from greenroom.http.answering.streaming.event_stream import Events, EventStream, StreamFormatter
from greenroom.schemas.events import Failed, InferenceEvent
from greenroom.schemas.problems import Problem, internal_error

log = structlog.get_logger(actor="http")


@attrs.frozen
class Recording:
    """What becomes of a complete answer, beside that it is sent.

    Args:
        record: Gets the model and the choices; returns why the answer could not be recorded, if so.
        closing: What a stream ends with; the client gets it when the answer is recorded.
    """

    record: Callable[[str, Sequence[CollectedChoice]], Awaitable[Problem | None]]
    closing: bytes = b""


class CollectingFormatter:
    """Formats a stream with another formatter, and puts the answer together meanwhile.

    Args:
        choices: How many answers are streamed.
    """

    def __init__(self, formatter: StreamFormatter, choices: int) -> None:
        self._formatter = formatter
        self._collectors = [ChoiceCollector() for _ in range(choices)]
        self.opening = formatter.opening
        self.heartbeat = formatter.heartbeat
        self.failure = formatter.failure

    @property
    def content_type(self) -> str:
        """Of the response."""
        return self._formatter.content_type

    @property
    def finished(self) -> bool:
        """Whether the end of the stream has been formatted."""
        return self._formatter.finished

    def event(self, event: InferenceEvent) -> bytes:
        """Return what the client is to know of an event."""
        if not isinstance(event, Failed):
            collect(event, self._collectors)
        return self._formatter.event(event)

    def collected(self) -> list[CollectedChoice] | None:
        """Return the choices if the answer is complete."""
        choices = [choice for collector in self._collectors if (choice := collector.collected())]
        return choices if len(choices) == len(self._collectors) else None


class RecordedEventStream(EventStream):
    """The body of a streamed response that is recorded: its closing waits for that, no token does."""

    def __init__(
        self,
        events: Events,
        formatter: CollectingFormatter,
        received: Iterable[InferenceEvent],
        model: str,
        recording: Recording,
    ) -> None:
        super().__init__(events, formatter, received)
        self._collecting = formatter
        self._model = model
        self._recording = recording
        self._unrecorded: list[CollectedChoice] | None = None
        self._closed = False

    async def __anext__(self) -> bytes:
        if self._unrecorded is not None:
            return await self._close(self._unrecorded)
        piece = await super().__anext__()
        if not self._closed and self._collecting.finished:
            self._unrecorded = self._collecting.collected()
            if self._unrecorded is not None:
                # An empty piece would end the body.
                return piece.removesuffix(self._recording.closing) or await self._close(self._unrecorded)
        return piece

    async def _close(self, choices: Sequence[CollectedChoice]) -> bytes:
        self._unrecorded, self._closed = None, True
        try:
            problem = await self._recording.record(self._model, choices)
        except Exception:
            log.exception("recording crashed")
            problem = internal_error()
        return self._recording.closing if problem is None else self._collecting.failure(problem)
