"""Streamed responses whose end is sent only after a final step, e.g. storing the response, succeeded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from greenroom.http.answering.collecting.collected_answer import ChoiceCollector, CollectedChoice, collect
from greenroom.http.answering.streaming.event_stream import Events, EventStream, StreamFormatter
from greenroom.schemas.events.events import Failed, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, internal_error

log = get_logger(actor="http")


@attrs.frozen
class OnComplete:
    """A step to run once a response is complete, such as storing it, before the client gets the last bytes.

    Args:
        run: Function of the model's name and the response's choices; returns a problem if the step failed.
        last_bytes: Last bytes of a stream, which are sent once the step has succeeded.
    """

    run: Callable[[str, Sequence[CollectedChoice]], Awaitable[Problem | None]]
    last_bytes: bytes = b""


class CollectingFormatter:
    """Wraps a stream formatter and collects the choices that pass through it.

    Args:
        choices: Number of choices in the stream.
    """

    def __init__(self, formatter: StreamFormatter, choices: int) -> None:
        self._formatter = formatter
        self._collectors = [ChoiceCollector() for _ in range(choices)]
        self.opening = formatter.opening
        self.heartbeat = formatter.heartbeat
        self.failure = formatter.failure

    @property
    def content_type(self) -> str:
        return self._formatter.content_type

    @property
    def finished(self) -> bool:
        return self._formatter.finished

    @property
    def has_news(self) -> bool:
        return self._formatter.has_news

    def event(self, event: InferenceEvent) -> bytes:
        """Return the bytes that an event sends to the client, and collect the event."""
        if not isinstance(event, Failed):
            collect(event, self._collectors)
        return self._formatter.event(event)

    def collected(self) -> list[CollectedChoice] | None:
        """Return the choices if all are complete."""
        choices = [choice for collector in self._collectors if (choice := collector.collected())]
        return choices if len(choices) == len(self._collectors) else None


class CompletedEventStream(EventStream):
    """The body of a streamed response: tokens are sent at once, the last bytes after the final step."""

    def __init__(
        self,
        events: Events,
        formatter: CollectingFormatter,
        received: Iterable[InferenceEvent],
        model: str,
        on_complete: OnComplete,
    ) -> None:
        super().__init__(events, formatter, received)
        self._collecting = formatter
        self._model = model
        self._on_complete = on_complete
        self._pending: list[CollectedChoice] | None = None
        self._closed = False

    async def __anext__(self) -> bytes:
        if self._pending is not None:
            return await self._close(self._pending)
        piece = await super().__anext__()
        if not self._closed and self._collecting.finished:
            self._pending = self._collecting.collected()
            if self._pending is not None:
                # An empty piece would end the body.
                return piece.removesuffix(self._on_complete.last_bytes) or await self._close(self._pending)
        return piece

    async def _close(self, choices: Sequence[CollectedChoice]) -> bytes:
        self._pending, self._closed = None, True
        try:
            problem = await self._on_complete.run(self._model, choices)
        except Exception:
            log.exception("recording crashed")
            problem = internal_error()
        return self._on_complete.last_bytes if problem is None else self._collecting.failure(problem)
