"""One sequence that is being generated, and what the host knows about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sequences.answer_logprobs import AnswerLogprobs
from greenroom.schemas.events import Finished, FinishReason, InferenceEvent, Timing, Token, Usage
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.prepared_input import PreparedInput

if TYPE_CHECKING:
    from greenroom.engine.grammar.matcher import Matcher


class Detokenizer(Protocol):
    """What is used of mlx-lm's streaming detokenizers."""

    @property
    def last_segment(self) -> str: ...

    def add_token(self, token: int) -> None: ...

    def finalize(self) -> None: ...


class Processor(Protocol):
    """What is used of a stream processor."""

    @property
    def stopped(self) -> str | None: ...

    @property
    def has_tool_calls(self) -> bool: ...

    @property
    def in_reasoning(self) -> bool: ...

    @property
    def reasoning_tokens(self) -> int: ...

    @property
    def malformed_calls(self) -> int: ...

    def feed(self, text: str, tokens: int = 1) -> GenericSequence[InferenceEvent]: ...

    def finish(self) -> GenericSequence[InferenceEvent]: ...


class OutputProcessor(Protocol):
    """What is used of an adapter: how tokens become text, and text events."""

    def new_detokenizer(self, prepared: PreparedInput) -> Detokenizer: ...

    def new_stream_processor(
        self, prepared: PreparedInput, new_call_id: Callable[[], str], index: int = 0
    ) -> Processor: ...

    def token(self, ident: int) -> Token: ...


@attrs.define(eq=False)
class Sequence:
    """A request on its way through the batch.

    Args:
        prompt: Token ids, `[prompt]`.
        max_tokens: Tokens to generate at most.
        sampling: How its tokens are drawn.
        sampled: Tokens that were drawn, or are being drawn, for this row.
        generated: Tokens that the host has read; never more than `sampled`.
        ended: Its last event was handed out.
        key: Whose prefixes it shares; None if its tokens do not say all that its cache depends on.
        checkpoints: Where turns end in the prompt, in tokens.
        cached: Tokens of the prompt that were not computed, because they were known.
        answer: Tokens that were read.
        on_leave: Told the row, the cache that it leaves and its place in it (None: all of it is the row's).
        matcher: Holds the answer to a grammar; None if it may say anything.
        index: Which choice of the request it is.
        scores: Log-probabilities of its tokens, if they are wanted.
        drafted: Tokens that were drafted for its answer and verified.
        accepted: Those of them that became part of it.
        twins: Further choices of the request, which begin where this one's prompt ends.
        inputs: What has to be computed before it decodes: the prompt, with the answer so far if it resumes.
        resumes: It was stopped for want of memory.
        apart: It is one of several choices, and is computed on its own from now on.
        serial: Rows in the order in which their requests came.
    """

    request_id: str
    prompt: GenericSequence[int]
    max_tokens: int
    stop_token_ids: frozenset[int]
    sampling: SamplingParameters
    detokenizer: Detokenizer
    processor: Processor
    sampled: int = 0
    generated: int = 0
    finished: bool = False
    key: ModelKey | None = None
    checkpoints: tuple[int, ...] = ()
    cached: int = 0
    answer: list[int] = attrs.field(factory=list)
    on_remove: Callable[[Sequence, list[Any], int | None], None] | None = None
    matcher: Matcher | None = None
    index: int = 0
    logprobs: AnswerLogprobs | None = None
    drafted: int = 0
    accepted: int = 0
    parallel_samples: tuple[Sequence, ...] = ()
    prefill_tokens: GenericSequence[int] = attrs.field(
        default=attrs.Factory(lambda self: self.prompt, takes_self=True)
    )
    preempted: bool = False
    on_its_own: bool = False
    serial: int = 0
    submitted_at: float = attrs.field(factory=time.perf_counter)
    started_at: float | None = None
    first_token_at: float | None = None

    @property
    def length(self) -> int:
        """Tokens that the cache holds for this row once its next step is done."""
        return len(self.prompt) + self.sampled

    def preempt(self) -> None:
        """Stop for now: a token that was drawn but not read is drawn again, and comes out the same."""
        self.sampled = self.generated
        self.prefill_tokens = (*self.prompt, *self.answer)
        self.preempted = True

    def append_token(self, token: int) -> list[InferenceEvent]:
        """Account for the next token of the answer; the last event is Finished if it was the last one.

        Raises:
            ProblemError: The answer's grammar cannot go on.
        """
        scores = self.logprobs
        if scores is None:
            return self._append_token(token)
        thinking = self.processor.in_reasoning
        events = self._append_token(token)
        if thinking or self.processor.in_reasoning:
            scores.discard()
        return scores.attach(events)

    def _append_token(self, token: int) -> list[InferenceEvent]:
        if self.first_token_at is None:
            self.first_token_at = time.perf_counter()
        self.generated += 1
        self.answer.append(token)
        matcher = self.matcher
        if matcher is None:
            ends = token in self.stop_token_ids
        else:
            ends = matcher.is_stop_token(token) or (matcher.stoppable and token in self.stop_token_ids)
        if ends:
            return self.finish("stop")
        if matcher is not None:
            matcher.accept_token(token)
        if self.logprobs is not None:
            self.logprobs.add(token)
        processor = self.processor
        self.detokenizer.add_token(token)
        events = list(processor.feed(self.detokenizer.last_segment))
        if processor.stopped is not None or (matcher is not None and matcher.is_terminated):
            return events + self.finish("stop")
        if self.generated >= self.max_tokens:
            return events + self.finish("length")
        return events

    def finish(self, reason: FinishReason) -> list[InferenceEvent]:
        """Hand over what is still held back, and say why and how the answer ended."""
        self.finished = True
        events: list[InferenceEvent] = []
        processor = self.processor
        if reason != "cancelled":
            if processor.stopped is None:
                self.detokenizer.finalize()
                if text := self.detokenizer.last_segment:
                    events += processor.feed(text, 0)
            events += processor.finish()
            if processor.stopped is not None:
                reason = "stop"
            if reason == "stop" and processor.has_tool_calls:
                reason = "tool_calls"
        events.append(Finished(reason, self.usage(), self.timing(), processor.stopped, self.index))
        return events

    def usage(self) -> Usage:
        """Return what the answer has used so far."""
        return Usage(
            len(self.prompt),
            self.generated,
            self.cached,
            self.processor.reasoning_tokens,
            self.drafted,
            self.accepted,
        )

    def timing(self) -> Timing:
        """Return the seconds that the answer has taken so far."""
        now = time.perf_counter()
        started = self.started_at or now
        first = self.first_token_at or now
        return Timing(queued=started - self.submitted_at, prefill=first - started, decode=now - first)
