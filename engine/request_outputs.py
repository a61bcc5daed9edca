"""The requests that are not finished: what becomes of their tokens, and how each of them ends."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from greenroom.engine.batch.batch import Batch
from greenroom.engine.scheduler.admission import Admission
from greenroom.engine.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.scheduler.running_batches import RunningBatches
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.events import Failed, InferenceEvent, Usage
from greenroom.schemas.problems import Problem, ProblemError

Events = list[tuple[str, InferenceEvent]]
"""Events with the ids of the requests they belong to, in order."""

log = structlog.get_logger(__name__)


class RequestOutputs:
    """Each request gets its events in order, the last of which is a Failed or, by choice, a Finished.

    Args:
        admission: Where a row may wait or hold room, `prefill` where its prompt may be, `groups` where it
            may decode: it is taken out of all of them when it ends.

    Attributes:
        rows: The first choice of each request.
        events: What has happened and nobody was told.
    """

    def __init__(self, admission: Admission, prefill: PrefillQueue, batches: RunningBatches) -> None:
        self.sequences: dict[str, Sequence] = {}
        self.events: Events = []
        self._admission = admission
        self._prefill = prefill
        self._batches = batches

    def add(self, row: Sequence) -> None:
        """A request was taken on; its further choices are the row's twins."""
        self.sequences[row.request_id] = row

    def reject(self, request_id: str, problem: Problem) -> None:
        """A request was not taken on."""
        self.events.append((request_id, Failed(problem)))

    def emit(self, row: Sequence, events: Iterable[InferenceEvent]) -> None:
        """Something happened to a row."""
        self.events += [(row.request_id, event) for event in events]

    def take_events(self) -> Events:
        """What has happened since the last call."""
        events, self.events = self.events, []
        return events

    def append_token(self, group: Batch, row: Sequence, token: int) -> None:
        """Handle one token; what a parser or a template does wrong costs its own request only."""
        try:
            events = row.append_token(token)
        except ProblemError as error:
            self.fail(row, error.problem)
            return
        except Exception:
            log.exception("request failed", request_id=row.request_id)
            self.fail(row, _broken())
            return
        self.emit(row, events)
        if row.finished:
            group.remove(row)
            self._on_finished(row)

    def finish_at_length(self, row: Sequence) -> None:
        """There is no memory for the rest of an answer, and there never will be."""
        self.emit(row, row.finish("length"))
        self._on_finished(row)

    def cancel(self, request_id: str) -> None:
        """Nobody wants a request any more, if it is not finished."""
        first = self.sequences.pop(request_id, None)
        if first is None:
            return
        for row in self._remove(first):
            self.emit(row, row.finish("cancelled"))

    def fail(self, row: Sequence, problem: Problem) -> None:
        """End a request of which a row cannot go on; no other notices."""
        first = self.sequences.pop(row.request_id, None)
        if first is not None:
            usage: Usage | None = None
            for choice in self._remove(first):
                choice.finished = True
                usage = choice.usage() if usage is None else usage.plus(choice.usage())
            self.emit(row, [Failed(problem, usage, row.timing())])

    def _on_finished(self, row: Sequence) -> None:
        """A choice has handed over its last event."""
        self._admission.remove(row)
        first = self.sequences.get(row.request_id)
        if first is not None and all(choice.finished for choice in (first, *first.parallel_samples)):
            del self.sequences[row.request_id]
        if broken := row.processor.malformed_calls:
            log.warning("broken tool calls", request_id=row.request_id, calls=broken)

    def _remove(self, first: Sequence) -> list[Sequence]:
        """Stop computing for a request; returns its choices that have not ended."""
        under_way = [choice for choice in (first, *first.parallel_samples) if not choice.finished]
        for choice in under_way:
            self._prefill.remove(choice)
            self._admission.remove(choice)
            for group in self._batches:
                group.remove(choice)
        return under_way


def _broken() -> Problem:
    return Problem(500, "internal_error", "The answer could not be processed; see the server's log.")
