"""Policy for the amount of prefill between two decode steps."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from collections.abc import Sequence as GenericSequence

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.prefix_cache.restoration import Restoration
from greenroom.engine.text.scheduler.step_costs import PrefillChunk, StepCosts
from greenroom.engine.text.sequence import Sequence
from greenroom.schemas.events.events import PromptProgress

_FIRST_CHUNK = 16
_FIRST_CHUNK_IDLE = 256  # Tokens of a first chunk while costs are unknown
_KNOWN_AFTER = 8  # Number of timed chunks after which a larger first chunk is safe
_GROWTH = 2
_SIMILAR = 2  # Multiple of the longest prompt of a batching window up to which others may join it
_SKIP_EVERY, _SKIPS = 64, 2
"""Steps with prefill beside running batches, and the last ones of them that go without it, to time the decode
step by itself: chunk times alone cannot tell a slower machine from a more expensive prompt.
"""
_SLOW_PASS_MS = 30.0
"""Milliseconds of a pass over the weights from which idle chunks grow with it, so that they stay few.

On a CPU, chunks of 250 ms held four tokens of a model with 135 million weights, and prefill took 1.4 times as
long as in one chunk.
"""


@attrs.frozen
class PrefillPolicy:
    """Sizes chunks in milliseconds, to bound the inter-token latency of running streams.

    Args:
        max_stall: Maximum time that a chunk of a lone prompt may add between two tokens, in decode steps.
        step_ms: Lower bound for the assumed decode step in milliseconds; nobody notices a shorter wait.
        max_waiting_factor: Largest factor by which chunks grow with the number of waiting prompts.
        idle_ms: Milliseconds of a chunk while nothing decodes; a newly arriving prompt waits for it.
        batching_window_ms: Milliseconds of a chunk while all decoding sequences arrived with its prompts.
        min_chunk: Minimum tokens of a chunk, whatever they cost, so that every prompt makes progress.
        max_chunk: Maximum number of tokens of a chunk, padding included.
        padding: Largest share of a chunk that may be padding.
    """

    max_stall: float = 2.0
    step_ms: float = 6.0
    max_waiting_factor: float = 4.0
    idle_ms: float = 250.0
    batching_window_ms: float = 150.0
    min_chunk: int = 4
    max_chunk: int = 2048
    padding: float = 0.25

    def budget(
        self, decode_ms: float, waiting: int = 1, *, window: bool = False, pass_ms: float = 0.0
    ) -> float:
        """Return the time budget of the next chunk, in milliseconds.

        A burst of prompts finishes soonest if decoding sequences yield to prefill: sequences are cheaper in
        one batch, and the first of a burst would otherwise decode alone for long.

        Args:
            decode_ms: Milliseconds of a decode step of the running batches; 0 if there are none.
            pass_ms: Milliseconds of a decode step of one row; 0 if none was timed.
        """
        if not decode_ms:
            return self.idle_ms * max(1.0, pass_ms / _SLOW_PASS_MS)
        factor = min(max(1.0, waiting), self.max_waiting_factor)
        stall = self.max_stall * max(decode_ms, self.step_ms) * factor
        return max(stall, self.batching_window_ms) if window else stall

    def chunk_tokens(self, costs: StepCosts, budget: float, context: int, last: int, *, idle: bool) -> int:
        """Return the number of tokens of one prompt that fit into the budget.

        Chunks grow gradually, since costs are only known for sizes already tried; if no other stream would
        notice a wrong guess, this ends after a few timed chunks.

        Args:
            context: Tokens already in its KV cache.
            last: Tokens of the previous chunk; 0 at the start.
            idle: Whether nothing decodes but sequences that arrived with the prompt.
        """
        if math.isinf(budget):
            return self.max_chunk
        known = costs.prefill.samples >= _KNOWN_AFTER
        if known and idle:
            return max(min(costs.tokens_within(budget, context), self.max_chunk), self.min_chunk)
        unknown = _FIRST_CHUNK_IDLE if idle or known else _FIRST_CHUNK
        first = round(unknown * min(self.max_stall, 1))
        tried = max(_GROWTH * last, first)
        fitting = costs.tokens_within(budget, context) if costs.prefill.samples else tried
        return max(min(fitting, tried, self.max_chunk), self.min_chunk)

    def cobatched(self, remaining: GenericSequence[int], first: int, tokens: int) -> list[int]:
        """Return the indices of the prompts that can share a chunk with `first` at little padding.

        Args:
            remaining: Uncomputed tokens of each prompt.
            tokens: Size of the chunk in tokens, padding included.
        """
        chosen, longest, total = [first], remaining[first], remaining[first]
        by_difference = sorted(range(len(remaining)), key=lambda index: abs(remaining[index] - longest))
        for index in by_difference:
            if index == first:
                continue
            width = max(longest, remaining[index])
            area = width * (len(chosen) + 1)
            if area > tokens or area - total - remaining[index] > self.padding * area:
                break
            chosen.append(index)
            longest, total = width, total + remaining[index]
        return chosen


class PrefillPacing:
    """Applies the policy to successive steps, of which some compute no prompt."""

    def __init__(self, policy: PrefillPolicy, costs: StepCosts, window: BatchingWindow) -> None:
        self._policy = policy
        self._costs = costs
        self._window = window
        self._mixed_steps = 0
        self._last_chunk = 0
        self._long_chunks = False

    def rest(self) -> None:
        """Begin a step without prompts."""
        self._mixed_steps = 0

    def begin_step(self, following: PrefillRequest | None, decode_ms: float, waiting: int) -> float | None:
        """Return the milliseconds that prefill may take in this step; None if no prompt is computed.

        Args:
            following: Prompt to compute next; None if all wait.
            decode_ms: Milliseconds of a decode step, which prefill delays; 0 if nothing decodes.
        """
        idle = decode_ms == 0
        in_window = not idle and following is not None and self._window.covers(following)
        self._long_chunks = idle or in_window
        mixed_steps = 0 if self._long_chunks else self._mixed_steps + 1
        if (mixed_steps == 0) != (self._mixed_steps == 0):
            self._last_chunk = 0
        self._mixed_steps = mixed_steps
        if mixed_steps % _SKIP_EVERY >= _SKIP_EVERY - _SKIPS:
            return None
        if following is not None and following.sequence.features is not None:
            waiting = 1  # Images take as long as many prompts, so streams yield no further for others.
        return self._policy.budget(decode_ms, waiting, window=in_window, pass_ms=self._costs.pass_ms)

    def chunk_tokens(self, budget: float, context: int) -> int:
        """Return the size of the next chunk in tokens. `budget`: milliseconds left in this step; `context`:
        number of tokens before the chunk.
        """
        return self._policy.chunk_tokens(
            self._costs, budget, context, self._last_chunk, idle=self._long_chunks
        )

    def record(self, chunks: Collection[PrefillChunk]) -> None:
        """Record the chunks that were launched in this step; later ones grow gradually from their size."""
        self._last_chunk = sum(rows * tokens for rows, tokens, _ in chunks)


class BatchingWindow:
    """Tracks prompts that arrived with the decoding sequences, which tolerate longer chunks for them.

    The first sequences of a burst start to decode when their prompts are computed. If the other prompts were
    prefilled in the short chunks that protect unrelated streams, the few would decode alone for a long time.
    """

    def __init__(self, policy: PrefillPolicy) -> None:
        self._policy = policy
        self._sequences: set[Sequence] = set()
        self._longest = 0
        self._closes_at = 0.0

    def open(self, prefilled: PrefilledSequences, requests: Iterable[PrefillRequest], now: float) -> None:
        """Open a window when the first sequences finish prefill on an idle engine. `now`: current time in
        seconds; similar prompts that arrive within the window join it.
        """
        self._longest = max(len(sequence.prefill_tokens) for sequence in prefilled.sequences)
        self._closes_at = now + self._policy.batching_window_ms / 1e3
        self._sequences.clear()
        for request in requests:
            self.add(request, now)

    def add(self, request: PrefillRequest, now: float) -> None:
        if now < self._closes_at and request.remaining <= _SIMILAR * self._longest:
            self._sequences.add(request.sequence)

    def covers(self, request: PrefillRequest) -> bool:
        return request.sequence in self._sequences

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence whose prompt is computed or cancelled."""
        self._sequences.discard(sequence)


@attrs.define(eq=False)
class PrefillRequest:
    """A sequence whose prompt is not fully computed.

    Args:
        cache: Unbatched KV cache; created when the first chunk is due.
        computed: Tokens in the cache, including pending restoration and the chunk in flight.
        checkpoints: Token positions at which chunks must end.
        stored: Whether stored blocks must be read for the cached prefix.
        from_disk: Tokens of the restored prefix that were read from files.
        alone: Whether it must not share chunks: a shared chunk failed, or its prompt is scored.
        cache_version: Version of the prefix cache at the last match; matching happens before the first chunk.
    """

    sequence: Sequence
    cache: Cache | None = None
    restoration: Restoration | None = None
    computed: int = 0
    client: str = ""
    conversation: str = ""
    checkpoints: tuple[int, ...] = ()
    stored: bool = False
    from_disk: int = 0
    alone: bool = attrs.field(
        default=attrs.Factory(lambda self: self.sequence.prompt_logprobs is not None, takes_self=True)
    )
    cache_version: int = -1

    @property
    def until_checkpoint(self) -> int:
        """Maximum number of tokens that the next chunk may have."""
        following = (checkpoint - self.computed for checkpoint in self.checkpoints)
        longest = next((tokens for tokens in following if tokens > 0), self.remaining)
        scores, features = self.sequence.prompt_logprobs, self.sequence.features
        if features is not None:
            longest = min(longest, features.ready(self.computed))
        return longest if scores is None or scores.is_complete else min(longest, scores.chunk)

    def chunk(self, tokens: int) -> int:
        """Return the size of the next chunk, at most `tokens`; 0 if features must be computed first."""
        count, features = min(self.until_checkpoint, tokens), self.sequence.features
        return count if features is None else features.chunk(self.computed, count)

    @property
    def remaining(self) -> int:
        """Uncomputed tokens; the last prompt token is left to the sequence's first decode step."""
        return len(self.sequence.prefill_tokens) - 1 - self.computed

    @property
    def progress(self) -> PromptProgress:
        sequence, total = self.sequence, len(self.sequence.prefill_tokens)
        processed = self.computed if self.remaining else total
        metrics = sequence.metrics
        assert metrics.started_at is not None
        elapsed = time.perf_counter() - metrics.started_at
        return PromptProgress(processed, total, metrics.cached_tokens, elapsed)
