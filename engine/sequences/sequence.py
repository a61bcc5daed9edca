"""One answer that is being generated, and what the host knows about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as GenericSequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sequences.answer_logprobs import AnswerLogprobs
from greenroom.engine.sequences.metrics import SequenceMetrics
from greenroom.engine.sequences.output_processor import Detokenizer, Processor
from greenroom.engine.sequences.prompt_features import PromptFeatures
from greenroom.engine.sequences.prompt_logprobs import PromptLogprobs
from greenroom.schemas.control_tokens import ControlToken
from greenroom.schemas.events import Finished, FinishReason, InferenceEvent, TextDelta, Timing, Usage
from greenroom.schemas.model_key import ModelKey

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.matcher import Matcher
    from greenroom.engine.grammar.matching.pace import Pace

_NO_TOKENS: Mapping[int, ControlToken] = MappingProxyType({})

_PROGRESS_INTERVAL = 16
"""Tokens between two looks at whether so much of an answer is new that it is worth a copy."""


@attrs.define(eq=False)
class Sequence:
    """One choice of a request, from submission to its last event.

    What was asked:

    Args:
        prompt: Token ids, `[prompt]`.
        max_tokens: Tokens to generate at most.
        sampling: How its tokens are sampled.

    What turns its tokens into events:

    Args:
        matcher: Holds the answer to a grammar; None if it is free.
        index: Which choice of the request it is.
        logprobs: Log-probabilities of its tokens, if they are wanted.
        prompt_logprobs: Those of its prompt's tokens, if they are; all choices of a request share them.
        prompt_only: Only the prompt was wanted: the answer ends before its first token.
        control_tokens: By id; the text of these may mean nothing to a reader.
        end_of_turn_ids: Those of `stop_token_ids` with which the model itself ends an answer.
        appendix: What ends its visible text without being generated, unless it ends with calls.

    How far it has come:

    Args:
        sampled: Tokens that were sampled, or are being sampled.
        generated: Tokens that the host has read; never more than `sampled`.
        answer: Those tokens.
        raw: What they write, piece by piece, before anything read it.
        finished: Its last event was emitted.

    How its cache is computed:

    Args:
        key: Whose cached prefixes it shares; None if it shares none.
        features: What its prompt's tokens do not say; None if they say all. Its choices share it.
        checkpoints: Where turns end in the prompt, in tokens.
        prefill_tokens: What has to be computed before it decodes: the prompt, with the answer so far if it
            was preempted.
        on_remove: Called when it is removed from a batch, with the sequence, the cache and its row in it
            (None: the cache is its own).
        on_progress: Likewise called now and then while its answer goes on.
        inserted: Tokens of it that the prefix cache was given so far.
        parallel_samples: Further choices of the request, which begin where this one's prompt ends.
        on_its_own: It is one of several choices, and is computed by itself from now on.
        preempted: It was stopped for want of memory, once or more.
        serial: Its place in the order in which sequences were first admitted; 0 before.
    """

    request_id: str
    prompt: GenericSequence[int]
    max_tokens: int
    stop_token_ids: frozenset[int]
    sampling: SamplingParameters

    detokenizer: Detokenizer
    processor: Processor
    matcher: Matcher | None = None
    index: int = 0
    logprobs: AnswerLogprobs | None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_only: bool = False
    control_tokens: Mapping[int, ControlToken] = _NO_TOKENS
    end_of_turn_ids: frozenset[int] = frozenset()
    appendix: str = ""

    sampled: int = 0
    generated: int = 0
    answer: list[int] = attrs.field(factory=list)
    raw: list[str] = attrs.field(factory=list)
    finished: bool = False
    metrics: SequenceMetrics = attrs.field(factory=SequenceMetrics)

    key: ModelKey | None = None
    features: PromptFeatures | None = None
    checkpoints: tuple[int, ...] = ()
    prefill_tokens: GenericSequence[int] = attrs.field(
        default=attrs.Factory(lambda self: self.prompt, takes_self=True)
    )
    on_remove: Callable[[Sequence, list[Any], int | None], None] | None = None
    on_progress: Callable[[Sequence, list[Any], int | None], None] | None = None
    inserted: int = 0
    parallel_samples: tuple[Sequence, ...] = ()
    on_its_own: bool = False
    preempted: bool = False
    serial: int = 0

    @property
    def length(self) -> int:
        """Tokens that the cache holds for this sequence once its next step is done."""
        return len(self.prompt) + self.sampled

    @property
    def is_progress_due(self) -> bool:
        """Whether `on_progress` is to be called after this token: not for all sequences at the same step."""
        return (self.generated + self.serial) % _PROGRESS_INTERVAL == 0

    @property
    def slow_pace(self) -> Pace | None:
        """The pace of its grammar if that is so slow that only sequences under the same one wait for it."""
        matcher = self.matcher
        return matcher.pace if matcher is not None and matcher.pace.is_slow else None

    def preempt(self) -> None:
        """Stop for now; a token that was sampled but not read is sampled again, and is the same."""
        self.sampled = self.generated
        self.prefill_tokens = (*self.prompt, *self.answer)
        self.preempted = True

    def append_token(self, token: int) -> list[InferenceEvent]:
        """Append a token to the answer and return its events; the last is Finished if it was the last token.

        Raises:
            ProblemError: The answer's grammar cannot go on.
        """
        logprobs = self.logprobs
        if logprobs is None:
            events = self._append_token(token)
        else:
            was_in_reasoning = self.processor.in_reasoning
            events = self._append_token(token)
            if was_in_reasoning or self.processor.in_reasoning:
                logprobs.discard()
            events = logprobs.attach(events)
        return with_appendix(events, self) if self.appendix else events

    def _append_token(self, token: int) -> list[InferenceEvent]:
        if self.prompt_only:
            return self._finish("length")
        if not self.generated:
            self.metrics.first_token_at = time.perf_counter()
        self.generated += 1
        self.answer.append(token)
        matcher = self.matcher
        if matcher is None:
            ends = token in self.stop_token_ids
        else:
            ends = matcher.is_stop_token(token) or (matcher.stoppable and token in self.stop_token_ids)
        if ends:
            return self._finish("stop", ended_by_model=token in self.end_of_turn_ids)
        if matcher is not None:
            matcher.accept_token(token)
        if self.logprobs is not None:
            self.logprobs.add(token)
        processor = self.processor
        self.detokenizer.add_token(token)
        text = self.detokenizer.last_segment
        self.raw.append(text)
        events = list(processor.feed(text, 1, self.control_tokens.get(token)))
        if processor.stopped is not None or (matcher is not None and matcher.is_terminated):
            return events + self._finish("stop")
        if self.generated >= self.max_tokens:
            return events + self._finish("length")
        return events

    def finish(self, reason: FinishReason) -> list[InferenceEvent]:
        """Return the events of text that is still held back, and a Finished that says why it ended.

        A cancelled answer gives up its text, but keeps its usage and timing.
        """
        return with_appendix(self._finish(reason), self)

    def _finish(self, reason: FinishReason, *, ended_by_model: bool = False) -> list[InferenceEvent]:
        self.finished = True
        events: list[InferenceEvent] = []
        processor = self.processor
        if reason != "cancelled" and not self.prompt_only:
            if processor.stopped is None:
                self.detokenizer.finalize()
                if text := self.detokenizer.last_segment:
                    self.raw.append(text)
                    events += processor.feed(text, 0)
            events += processor.finish(ended_by_model=ended_by_model)
            if processor.stopped is not None:
                reason = "stop"
            if reason == "stop" and processor.has_tool_calls:
                reason = "tool_calls"
        raw = "".join(self.raw)
        events.append(Finished(reason, self.usage(), self.timing(), processor.stopped, self.index, raw=raw))
        return events

    def usage(self) -> Usage:
        """Return what the answer has used so far."""
        metrics = self.metrics
        return Usage(
            len(self.prompt),
            self.generated,
            metrics.cached_tokens,
            self.processor.reasoning_tokens,
            metrics.drafted_tokens,
            metrics.accepted_tokens,
            metrics.written_tokens,
            self.features.image_tokens if self.features is not None else 0,
        )

    def timing(self) -> Timing:
        """Return the seconds that the answer has taken so far."""
        return self.metrics.timing()


def with_appendix(events: list[InferenceEvent], sequence: Sequence) -> list[InferenceEvent]:
    """Return events of a sequence with what ends its visible text, if they end it and it has no calls."""
    last = events[-1] if events else None
    ended = isinstance(last, Finished) and last.reason in ("stop", "length")
    if sequence.appendix and ended and not sequence.processor.has_tool_calls:
        events.insert(len(events) - 1, TextDelta(sequence.appendix, sequence.index))
    return events
