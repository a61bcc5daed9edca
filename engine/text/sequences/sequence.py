"""Sequence: one answer being generated, with its state on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequences.answer_logprobs import AnswerLogprobs
from greenroom.engine.text.sequences.answer_text import AnswerText
from greenroom.engine.text.sequences.metrics import SequenceMetrics
from greenroom.engine.text.sequences.prefix_key import PrefixKey
from greenroom.engine.text.sequences.prompt_features import PromptFeatures
from greenroom.engine.text.sequences.prompt_logprobs import PromptLogprobs
from greenroom.schemas.events.events import Finished, FinishReason, InferenceEvent, Timing, Usage
from greenroom.schemas.events.explanation import PromptDifference

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.mask_latency import MaskLatency
    from greenroom.engine.grammar.matching.matcher import Matcher

_PROGRESS_INTERVAL = 16
"""Tokens between offers of a partial answer to the prefix cache."""


@attrs.define(eq=False)
class Sequence:
    """One choice of a request, from submission to its last event.

    Request:

    Args:
        prompt: Token ids, `[prompt]`.
        max_tokens: Maximum number of tokens to generate.
        sampling: Sampling parameters.

    Answer:

    Args:
        text: Conversion of its tokens to events.
        matcher: Grammar matcher; None if the answer is unconstrained.
        index: Index of the choice within the request.
        logprobs: Log-probabilities of its tokens, if requested.
        prompt_logprobs: Log-probabilities of the prompt's tokens, if requested; shared by all choices.
        prompt_only: Whether only the prompt was requested: the answer ends before its first token.
        end_of_turn_ids: Those of `stop_token_ids` with which the model itself ends an answer.

    Progress:

    Args:
        sampled: Number of tokens sampled, including those in flight.
        generated: Number of tokens that the host has read; at most `sampled`.
        answer: Tokens that the host has read.
        finished: Whether its last event was emitted.

    KV cache:

    Args:
        key: Key of the cached prefixes that it shares; None to share none.
        features: Model inputs beside the prompt's tokens; None if there are none. Shared by all choices.
        checkpoints: Ends of turns in the prompt, in tokens.
        prefill_tokens: Tokens to compute before it decodes: the prompt, plus the answer so far after
            preemption.
        on_remove: Callback for its removal from a batch, with the sequence, the cache and its row in it
            (None: the cache is its own).
        on_progress: Callback with the same arguments, called now and then during generation.
        is_explained: Whether its end carries an explanation.
        difference: Difference of its prompt from the client's nearest earlier one; None if there is none.
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

    text: AnswerText
    matcher: Matcher | None = None
    index: int = 0
    logprobs: AnswerLogprobs | None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_only: bool = False
    end_of_turn_ids: frozenset[int] = frozenset()

    sampled: int = 0
    generated: int = 0
    answer: list[int] = attrs.field(factory=list)
    finished: bool = False
    metrics: SequenceMetrics = attrs.field(factory=SequenceMetrics)

    key: PrefixKey | None = None
    features: PromptFeatures | None = None
    checkpoints: tuple[int, ...] = ()
    prefill_tokens: GenericSequence[int] = attrs.field(
        default=attrs.Factory(lambda self: self.prompt, takes_self=True)
    )
    on_remove: Callable[[Sequence, list[Any], int | None], None] | None = None
    on_progress: Callable[[Sequence, list[Any], int | None], None] | None = None
    is_explained: bool = False
    difference: PromptDifference | None = None
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
    def continues(self) -> bool:
        """True if it continues an earlier prompt: at least half of its own was cached."""
        return 2 * self.metrics.cached_tokens >= len(self.prompt)

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
            processor = self.text.processor
            was_in_reasoning = processor.in_reasoning
            events = self._append_token(token)
            if was_in_reasoning or processor.in_reasoning:
                logprobs.discard()
            events = logprobs.attach(events, processor.withheld)
        return self.text.append_appendix(events, self.index) if self.text.appendix else events

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
        events = self.text.add_token(token)
        if self.text.processor.stopped is not None or (matcher is not None and matcher.is_terminated):
            return events + self._finish("stop")
        if self.generated >= self.max_tokens:
            return events + self._finish("length")
        return events

    def finish(self, reason: FinishReason) -> list[InferenceEvent]:
        """Return the events of text still held back, and a Finished event with the reason.

        A cancelled answer loses the text held back, but keeps its usage and timing.
        """
        return self.text.append_appendix(self._finish(reason), self.index)

    def _finish(self, reason: FinishReason, *, ended_by_model: bool = False) -> list[InferenceEvent]:
        self.finished = True
        events: list[InferenceEvent] = []
        if reason != "cancelled" and not self.prompt_only:
            events, reason = self.text.end(reason, ended_by_model=ended_by_model)
        stopped, raw = self.text.processor.stopped, self.text.raw
        figures = self.usage(), self.timing()
        events.append(Finished(reason, *figures, stopped, self.index, raw=raw, tokens=tuple(self.answer)))
        return events

    def usage(self) -> Usage:
        """Return the token usage so far."""
        metrics = self.metrics
        return Usage(
            len(self.prompt),
            self.generated,
            metrics.cached_tokens,
            self.text.processor.reasoning_tokens,
            metrics.drafted_tokens,
            metrics.accepted_tokens,
            metrics.written_tokens,
            self.features.image_tokens if self.features is not None else 0,
        )

    def timing(self) -> Timing:
        """Return the seconds spent so far in the queue, in prefill and in decoding."""
        return self.metrics.timing()
