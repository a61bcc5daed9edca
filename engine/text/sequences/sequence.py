"""Sequence: one answer being generated, with its state on the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as GenericSequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequences.answer_logprobs import AnswerLogprobs
from greenroom.engine.text.sequences.metrics import SequenceMetrics
from greenroom.engine.text.sequences.output_processor import Detokenizer, Processor
from greenroom.engine.text.sequences.prompt_features import PromptFeatures
from greenroom.engine.text.sequences.prompt_logprobs import PromptLogprobs
from greenroom.schemas.events.events import Finished, FinishReason, InferenceEvent, TextDelta, Timing, Usage
from greenroom.schemas.messages.control_tokens import ControlToken
from greenroom.schemas.model_key import ModelKey

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.mask_latency import MaskLatency
    from greenroom.engine.grammar.matching.matcher import Matcher

_NO_TOKENS: Mapping[int, ControlToken] = MappingProxyType({})

_PROGRESS_INTERVAL = 16
"""Tokens between offers of a partial answer to the prefix cache."""


@attrs.define(eq=False)
class Sequence:
    """One choice of a request, from submission to its last event.

    Request:

    Args:
        prompt: Token ids, `[prompt]`.
        max_tokens: Most tokens to generate.
        sampling: Sampling parameters.

    Conversion of tokens to events:

    Args:
        matcher: Grammar matcher; None if the answer is unconstrained.
        index: Index of the choice within the request.
        logprobs: Log-probabilities of its tokens, if requested.
        prompt_logprobs: Log-probabilities of the prompt's tokens, if requested; shared by all choices.
        prompt_only: Whether only the prompt was requested: the answer ends before its first token.
        control_tokens: Control tokens by id, whose text may mean nothing to a reader.
        end_of_turn_ids: Those of `stop_token_ids` with which the model itself ends an answer.
        appendix: Text appended to the visible text without being generated, unless the answer ends with
            calls.

    Progress:

    Args:
        sampled: Number of tokens sampled, including those in flight.
        generated: Number of tokens that the host has read; at most `sampled`.
        answer: Tokens that the host has read.
        raw: Text of these tokens, piece by piece, before parsing.
        finished: Whether its last event was emitted.

    KV cache:

    Args:
        key: Model and adapter whose cached prefixes it shares; None to share none.
        features: Model inputs beside the prompt's tokens; None if there are none. Shared by all choices.
        checkpoints: Ends of turns in the prompt, in tokens.
        prefill_tokens: Tokens to compute before it decodes: the prompt, plus the answer so far after
            preemption.
        on_remove: Callback for its removal from a batch, with the sequence, the cache and its row in it
            (None: the cache is its own).
        on_progress: Callback with the same arguments, called now and then during generation.
        inserted: Number of its tokens inserted into the prefix cache so far.
        parallel_samples: Other choices of the request, which start when this one's prompt is computed.
        on_its_own: Whether it is one of several choices and is computed separately from now on.
        preempted: Whether it was ever preempted.
        serial: Position in the order of first admission; 0 before admission.
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
        """Tokens in the cache after this sequence's next step."""
        return len(self.prompt) + self.sampled

    @property
    def is_progress_due(self) -> bool:
        """True if `on_progress` is due after this token; sequences are staggered over the steps."""
        return (self.generated + self.serial) % _PROGRESS_INTERVAL == 0

    @property
    def slow_grammar(self) -> MaskLatency | None:
        """Mask latency of its grammar if that is slow; only sequences under the same grammar wait for it."""
        matcher = self.matcher
        return matcher.mask_latency if matcher is not None and matcher.mask_latency.is_slow else None

    def preempt(self) -> None:
        """Preempt the sequence; a token sampled but not read is sampled again, with the same result."""
        self.sampled = self.generated
        self.prefill_tokens = (*self.prompt, *self.answer)
        self.preempted = True

    def append_token(self, token: int) -> list[InferenceEvent]:
        """Append a token to the answer and return its events, ending with Finished after the last token.

        Raises:
            ProblemError: The answer's grammar cannot continue.
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
        """Return the events of text still held back, and a Finished event with the reason.

        A cancelled answer loses the text held back, but keeps its usage and timing.
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
        """Return the token usage so far."""
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
        """Return the seconds spent so far in the queue, in prefill and in decoding."""
        return self.metrics.timing()


def with_appendix(events: list[InferenceEvent], sequence: Sequence) -> list[InferenceEvent]:
    """Add the appendix to a sequence's events if they end its visible text and it has no tool calls."""
    last = events[-1] if events else None
    ended = isinstance(last, Finished) and last.reason in ("stop", "length")
    if sequence.appendix and ended and not sequence.processor.has_tool_calls:
        events.insert(len(events) - 1, TextDelta(sequence.appendix, sequence.index))
    return events
