"""Outputs of unfinished requests: their events, and the ways in which they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from greenroom.engine.resources.device_errors import check_device, raise_unless_own, synchronize_streams
from greenroom.engine.text.batch import Batch
from greenroom.engine.text.explanation import explain_sequence, explained
from greenroom.engine.text.scheduler.admission import Admission
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.running_batches import RunningBatches
from greenroom.engine.text.sequence import Sequence, SequenceFailures, TokenIntervals
from greenroom.schemas.events.events import Failed, InferenceEvent, PromptText, Usage
from greenroom.schemas.events.statistics import RowStatistics
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import EchoedPrompt
from greenroom.schemas.problems import Problem, ProblemError, model_broken

Events = list[tuple[str, InferenceEvent]]
"""Events in order, with the ids of their requests."""

log = get_logger(__name__)


class RequestOutputs:
    """Collects the events of each request; the last is a Failed, or a Finished for each choice.

    Args:
        admission: Admission that removes sequences when they end, as do `prefill` and `batches`.

    Attributes:
        sequences: First choice of each request, by request id.
        events: Events to be returned by `pop_events`.
        intervals: Seconds between the tokens of each answer.
    """

    def __init__(self, admission: Admission, prefill: PrefillQueue, batches: RunningBatches) -> None:
        self.sequences: dict[str, Sequence] = {}
        self.events: Events = []
        self.intervals = TokenIntervals()
        self._has_ended = False
        self._admission = admission
        self._prefill = prefill
        self._batches = batches

    def add(self, sequence: Sequence, echo: EchoedPrompt | None = None) -> None:
        """Add a request by its first choice, and emit its prompt if its client wants it back unscored."""
        self.sequences[sequence.request_id] = sequence
        if echo is not None and not echo.scored:
            choices = range(1 + len(sequence.parallel_samples))
            self.emit(sequence, (PromptText(echo.text, index) for index in choices))

    def reject(self, request_id: str, problem: Problem) -> None:
        self.events.append((request_id, Failed(problem)))

    def emit(self, sequence: Sequence, events: Iterable[InferenceEvent]) -> None:
        self.events += [(sequence.request_id, explained(sequence, event)) for event in events]

    def pop_events(self) -> Events:
        """Return the events since the last call. Raises DeviceError: the device has failed, so that finished
        answers may be wrong.
        """
        if self._has_ended:
            check_device(idle=not len(self._batches) and not len(self._prefill))
            self._has_ended = False
        self.intervals.end_step()
        events, self.events = self.events, []
        return events

    def usage(self) -> Usage:
        total = Usage()
        for first in self.sequences.values():
            if not first.finished:
                total = total.with_request(first.usage())
            for choice in first.parallel_samples:
                if not choice.finished:
                    total = total.plus(choice.usage())  # the prompt is counted with the first choice
        return total

    def rows(self) -> tuple[RowStatistics, ...]:
        every = (each for first in self.sequences.values() for each in (first, *first.parallel_samples))
        return tuple(_row(sequence) for sequence in every if not sequence.finished)

    def emit_prompt(self, sequence: Sequence, keep: int = 0) -> None:
        """Emit scored pieces of the prompt, except the last `keep` chunks, which may be in flight."""
        if sequence.prompt_logprobs is not None:
            self.emit(sequence, sequence.prompt_logprobs.read(keep))

    def append_token(self, batch: Batch, sequence: Sequence, token: int | None) -> None:
        """Process one token; errors of a parser or template fail only its own request. `token`: token id;
        None if the model's logits were not finite.
        """
        if token is None:
            self.fail(sequence, model_broken("an answer"))
            log.error("model broken", request_id=sequence.request_id, tokens=sequence.generated)
            return
        self.emit_prompt(sequence)
        if not self._emit_result(sequence, partial(sequence.append_token, token)):
            return
        self.intervals.add(sequence)
        if sequence.finished:
            batch.remove(sequence)
            self._on_finished(sequence)
        elif sequence.is_progress_due:
            batch.report_progress(sequence)

    def has_begun(self, sequence: Sequence) -> bool:
        first = self.sequences[sequence.request_id]
        return any(each.metrics.started_at is not None for each in (first, *first.parallel_samples))

    def finish_at_length(self, sequence: Sequence) -> None:
        """Finish a sequence for `length`: it needs more memory than it can ever get."""
        if self._emit_result(sequence, partial(sequence.finish, "length")):
            self._on_finished(sequence)

    def cancel(self, request_id: str) -> None:
        """Cancel an unfinished request and emit its usage so far."""
        first = self.sequences.pop(request_id, None)
        if first is not None:
            for choice in self._remove(first):
                choice.metrics.started_at = choice.metrics.started_at or first.metrics.started_at
                self.emit(choice, choice.finish("cancelled"))

    def fail_all(self, failures: SequenceFailures) -> None:
        """End the requests of these sequences, each with the problem of its own sequence."""
        for sequence, problem in failures:
            self.fail(sequence, problem)

    def fail(self, sequence: Sequence, problem: Problem) -> None:
        """Fail the request of a failed sequence and emit its usage so far. Raises DeviceError: the device has
        failed, which may be the cause of the sequence's failure.
        """
        first = self.sequences.pop(sequence.request_id, None)
        if first is not None:
            synchronize_streams()
            usage: Usage | None = None
            for choice in self._remove(first):
                choice.finished = True
                usage = choice.usage() if usage is None else usage.plus(choice.usage())
            self.emit(sequence, [Failed(problem, usage, sequence.metrics.timing())])

    def _emit_result(self, sequence: Sequence, process: Callable[[], Iterable[InferenceEvent]]) -> bool:
        """Emit the events of a parser or template; if it fails, fail the request and return False."""
        try:
            events = process()
        except ProblemError as error:
            self.fail(sequence, error.problem)
            return False
        except Exception as error:
            raise_unless_own(error)
            log.exception("request failed", request_id=sequence.request_id)
            detail = "The answer could not be processed; see the server's log."
            self.fail(sequence, Problem(500, "internal_error", detail))
            return False
        self.emit(sequence, events)
        return True

    def _on_finished(self, sequence: Sequence) -> None:
        self._has_ended = True
        self._admission.remove(sequence)
        first = self.sequences.get(sequence.request_id)
        if first is not None and all(choice.finished for choice in (first, *first.parallel_samples)):
            del self.sequences[sequence.request_id]
        if broken := sequence.text.processor.malformed_calls:
            log.warning("broken tool calls", request_id=sequence.request_id, calls=broken)

    def _remove(self, first: Sequence) -> list[Sequence]:
        unfinished = [choice for choice in (first, *first.parallel_samples) if not choice.finished]
        for choice in unfinished:
            self._prefill.remove(choice)
            self._admission.remove(choice)
            for batch in self._batches:
                batch.remove(choice)
        return unfinished


def _row(sequence: Sequence) -> RowStatistics:
    figures = sequence.metrics
    stage: Literal["waiting", "prefill", "decode"] = "waiting"
    if figures.started_at is not None:
        stage = "prefill" if figures.first_token_at is None else "decode"
    has_explanation = sequence.is_explained and stage != "waiting"
    return RowStatistics(
        sequence.request_id,
        sequence.index,
        stage,
        len(sequence.prompt),
        figures.cached_tokens,
        sequence.generated,
        explain_sequence(sequence) if has_explanation else None,
    )
