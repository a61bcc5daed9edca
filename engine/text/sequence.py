"""Sequence: one answer being generated, with its state on the host, its times and its failures."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from greenroom.engine.lora.layers import RowAdapter
from greenroom.engine.lora.loaded_adapters import LoadedAdapters
from greenroom.engine.text.prompt_features import PrefixKey, PromptFeatures
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequence_outputs import AnswerLogprobs, AnswerText, OutputProcessor, PromptLogprobs
from greenroom.schemas.events.events import Finished, FinishReason, InferenceEvent, Timing, Usage
from greenroom.schemas.events.explanation import CachedTokens, Preemptions, PromptDifference, Waits
from greenroom.schemas.events.statistics import Histogram, HistogramSnapshot
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, load_failed

if TYPE_CHECKING:
    from greenroom.engine.grammar.masks import MaskLatency
    from greenroom.engine.grammar.matcher import Matcher


Awaited = Literal["prefix", "disk"]
"""Cause of a prompt's wait in its turn: another prompt with the same beginning, or the disk."""


@attrs.define(eq=False)
class SequenceMetrics:
    """Figures for the usage and timing in a sequence's last event; times are from `perf_counter`.

    Args:
        cached_tokens: Prompt tokens restored from the prefix cache.
        known_tokens: Prompt tokens that the prefix cache had in some form when prefill began; None if the
            sequence uses no cache.
        written_tokens: Prompt tokens inserted into the prefix cache.
        drafted_tokens: Draft tokens that were verified, and tokens of the client's prediction.
        accepted_tokens: Draft tokens that were accepted.
        first_token_at: Time at which the first token was read.
        last_token_at: End of the step that read the last token so far.
    """

    cached_tokens: int = 0
    disk_tokens: int = 0
    known_tokens: int | None = 0
    written_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    submitted_at: float = attrs.field(factory=time.perf_counter)
    admitted_at: float | None = None
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    _awaited: Awaited | None = None
    _awaited_since: float = 0.0
    _waited: dict[Awaited, float] = attrs.field(factory=lambda: {"prefix": 0.0, "disk": 0.0})
    _waited_before_start: float = 0.0
    _preempted: Preemptions = Preemptions()
    _preempted_at: float | None = None

    def timing(self) -> Timing:
        """Return the seconds spent so far in the queue, in prefill and in decoding."""
        now = time.perf_counter()
        started = self.started_at or now
        first = self.first_token_at or now
        return Timing(queued=started - self.submitted_at, prefill=first - started, decode=now - first)

    def admit(self) -> None:
        """Record that the sequence was given memory; only the first time counts."""
        self.admitted_at = self.admitted_at or time.perf_counter()

    def wait_for(self, awaited: Awaited | None) -> None:
        """Record the cause of a wait that begins; None if the sequence is computed or awaits its turn."""
        if awaited == self._awaited:
            return
        now = time.perf_counter()
        if self._awaited is not None:
            self._waited[self._awaited] += now - self._awaited_since
        self._awaited, self._awaited_since = awaited, now

    def start(self) -> None:
        """Record the time at which prefill begins; later calls, after a preemption, change nothing."""
        if self.started_at is None:
            self.started_at = time.perf_counter()
            self._waited_before_start = sum(self._waited.values())

    def preempt(self) -> None:
        self._preempted = attrs.evolve(self._preempted, count=self._preempted.count + 1)
        self._preempted_at = time.perf_counter()

    def restart(self, tokens: int) -> None:
        self._preempted = attrs.evolve(self._preempted, tokens=self._preempted.tokens + tokens)

    def resume(self) -> None:
        """Record that the sequence decodes, perhaps after it was preempted."""
        if self._preempted_at is not None:
            seconds = self._preempted.seconds + time.perf_counter() - self._preempted_at
            self._preempted = attrs.evolve(self._preempted, seconds=seconds)
            self._preempted_at = None

    def waits(self) -> Waits:
        now = time.perf_counter()
        admitted = self.admitted_at or now
        started = self.started_at or now
        waited = dict(self._waited)
        if self._awaited is not None:
            waited[self._awaited] += now - self._awaited_since
        before = self._waited_before_start if self.started_at is not None else sum(waited.values())
        turn = max(0.0, started - admitted - before)
        return Waits(memory=admitted - self.submitted_at, turn=turn, **waited)

    def preempted(self) -> Preemptions:
        if self._preempted_at is None:
            return self._preempted
        seconds = self._preempted.seconds + time.perf_counter() - self._preempted_at
        return attrs.evolve(self._preempted, seconds=seconds)

    def cached(self, image_tokens: int) -> CachedTokens:
        """Return the numbers of cached tokens by place; of `image_tokens` tokens, features were cached."""
        return CachedTokens(self.cached_tokens - self.disk_tokens, self.disk_tokens, image_tokens)


_PROGRESS_INTERVAL = 16  # Tokens between offers of a partial answer to the prefix cache


@attrs.define(eq=False)
class Sequence:
    """One choice of a request, from submission to its last event.

    Request:

    Args:
        prompt: Token ids, `[prompt]`.
        max_tokens: Maximum number of tokens to generate.

    Answer:

    Args:
        text: Conversion of its tokens to events.
        matcher: Grammar matcher; None if the answer is unconstrained.
        logprobs: Log-probabilities of its tokens, if requested.
        prompt_logprobs: Log-probabilities of the prompt's tokens, if requested; shared by all choices.
        prompt_only: Whether only the prompt was requested: the answer ends before its first token.
        end_of_turn_ids: Those of `stop_token_ids` with which the model itself ends an answer.

    Progress:

    Args:
        sampled: Number of tokens sampled, including those in flight.
        generated: Number of tokens that the host has read; at most `sampled`.
        answer: Tokens that the host has read.

    KV cache:

    Args:
        key: Key of the cached prefixes that it shares; None to share none.
        features: Model inputs beside the prompt's tokens; None if there are none. Shared by all choices.
        checkpoints: Ends of turns in the prompt, in tokens.
        prefill_tokens: Tokens to compute before it decodes: the prompt, plus the answer so far after
            preemption.
        on_remove: Callback for its removal from a batch.
        on_progress: The same, called now and then during generation.
        difference: Difference of its prompt from the client's nearest earlier one; None if there is none.
        inserted: Number of its tokens inserted into the prefix cache so far.
        parallel_samples: Other choices of the request, which start when this one's prompt is computed.
        on_its_own: Whether it is one of several choices and is computed separately from now on.
        serial: Position in the order of first admission; 0 before admission.
        adapter: LoRA adapter of its rows; None for the base model alone.
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
    on_remove: CacheTaker | None = None
    on_progress: CacheTaker | None = None
    is_explained: bool = False
    difference: PromptDifference | None = None
    inserted: int = 0
    parallel_samples: tuple[Sequence, ...] = ()
    on_its_own: bool = False
    preempted: bool = False
    serial: int = 0
    adapter: RowAdapter | None = None

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
        Raises ProblemError: the answer's grammar cannot continue.
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
        events: list[InferenceEvent] = []
        if reason != "cancelled" and not self.prompt_only:
            events, reason = self.text.end(reason, ended_by_model=ended_by_model)
        self.finished = True
        stopped, raw = self.text.processor.stopped, self.text.raw
        figures = self.usage(), self.metrics.timing()
        events.append(Finished(reason, *figures, stopped, self.index, raw=raw, tokens=tuple(self.answer)))
        return events

    def usage(self) -> Usage:
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


CacheTaker = Callable[[Sequence, list[Any], int | None, int], None]
"""Function that is offered a sequence, the cache, its row there (None: the cache is its own), and the number
of its tokens in the row that have been read, the prompt's included.
"""


def new_sequence(
    request: InferenceRequest,
    prepared: PreparedPrompt,
    output_processor: OutputProcessor,
    on_remove: CacheTaker,
    on_progress: CacheTaker,
    features: PromptFeatures | None = None,
    adapters: LoadedAdapters | None = None,
) -> Sequence:
    """Create a request's first choice; the others become its parallel samples.

    Args:
        on_remove: Callback for a choice that is removed from a batch; see `Sequence`.
        on_progress: Callback during generation; see `Sequence`.
        features: Model inputs beside the prompt's tokens, such as images.
        adapters: Adapters of the model, with that of the request.

    Raises:
        ProblemError: 503: the request's adapter cannot be applied.
    """
    adapter, adapter_key = None, None
    if (applied := request.applied) is not None:
        if adapters is None or prepared.adapter is None:
            raise ProblemError(load_failed(applied.name, "this model takes no adapters."))
        adapter, adapter_key = adapters.apply(prepared.adapter, applied)
    first, *others = (_choice(request, prepared, output_processor, i) for i in range(prepared.parameters.n))
    prompt_logprobs = _prompt_logprobs(prepared, output_processor)
    shares_prefixes = prompt_logprobs is None  # cached prefixes have no logits to score
    for choice in (first, *others):
        choice.on_remove, choice.on_progress = on_remove, on_progress
        choice.key = PrefixKey(adapter_key, request.cache_salt) if shares_prefixes else None
        choice.adapter = adapter
        choice.features = features
        choice.prompt_logprobs = prompt_logprobs
    first.parallel_samples = tuple(others)
    if adapter is not None:
        adapter.adapter.rows.update((first, *others))
    return first


def _prompt_logprobs(prepared: PreparedPrompt, output_processor: OutputProcessor) -> PromptLogprobs | None:
    echo, parameters = prepared.echo, prepared.parameters
    if echo is None or not echo.scored:
        return None
    return PromptLogprobs(
        prepared.tokens, echo, output_processor.token, parameters.top_logprobs, parameters.n
    )


def _choice(
    request: InferenceRequest, prepared: PreparedPrompt, output_processor: OutputProcessor, index: int
) -> Sequence:
    parameters, matcher, end_tokens = prepared.parameters, prepared.matcher, prepared.stop_token_ids
    suppressible = end_tokens if matcher is None else matcher.suppressible(end_tokens)
    logprobs = None
    if parameters.logprobs:
        logprobs = AnswerLogprobs(output_processor.token, parameters.top_logprobs)
    return Sequence(
        request_id=request.id,
        prompt=prepared.tokens,
        max_tokens=max(1, prepared.max_tokens),
        prompt_only=not prepared.max_tokens,
        stop_token_ids=end_tokens,
        sampling=SamplingParameters.of(parameters, suppressible, index),
        text=AnswerText(
            output_processor.new_detokenizer(prepared),
            output_processor.new_stream_processor(prepared, _new_call_id, index),
            prepared.control_tokens,
            prepared.appendix,
        ),
        checkpoints=prepared.checkpoints,
        matcher=matcher if matcher is None or index == 0 else matcher.clone(),
        index=index,
        logprobs=logprobs,
        end_of_turn_ids=prepared.end_of_turn_ids,
        metrics=SequenceMetrics(drafted_tokens=prepared.predicted),
    )


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2),
    *(0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 40.0),
)
"""Bounds in seconds: vLLM's, with finer ones below for small models and fewer above."""


class TokenIntervals:
    """Observes, at the end of a step, the seconds since each answer's token before.

    Several tokens of an answer in one step, such as accepted drafts, count once, as in vLLM: its client gets
    them together.
    """

    def __init__(self) -> None:
        self._histogram = Histogram(BOUNDS)
        self._advanced: dict[Sequence, None] = {}

    def add(self, sequence: Sequence) -> None:
        """Record that this step has read a token of the sequence."""
        self._advanced[sequence] = None

    def end_step(self) -> None:
        """Observe the intervals of the sequences with a token in this step."""
        if not self._advanced:
            return
        now = time.perf_counter()
        for sequence in self._advanced:
            metrics = sequence.metrics
            if metrics.last_token_at is not None:
                self._histogram.observe(now - metrics.last_token_at)
            metrics.last_token_at = now
        self._advanced.clear()

    def snapshot(self) -> HistogramSnapshot:
        return self._histogram.snapshot()


def prefill_keys(sequence: Sequence) -> GenericSequence[int]:
    if sequence.features is None:
        return sequence.prefill_tokens
    return (*sequence.features.keys, *sequence.prefill_tokens[len(sequence.prompt) :])


def keys_so_far(sequence: Sequence) -> GenericSequence[int]:
    """Return the prefix cache keys of the prompt and of the answer tokens read so far."""
    prompt = sequence.prompt if sequence.features is None else sequence.features.keys
    return (*prompt, *sequence.answer)


SequenceFailures = list[tuple[Sequence, Problem]]
"""Failed sequences with the problem of each."""

log = get_logger(__name__)


def not_computed(sequences: Iterable[Sequence], step: str) -> SequenceFailures:
    """Log the current exception and return a failure for each sequence; call it in an exception handler."""
    failures: SequenceFailures = []
    for sequence in sequences:
        log.exception("request failed", request_id=sequence.request_id, step=step)
        problem = Problem(500, "internal_error", f"The prompt's {step} failed; see the server's log.")
        failures.append((sequence, problem))
    return failures
