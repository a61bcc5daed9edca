"""Decode steps of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as GenericSequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.batch.batch_cache import BatchCache
from greenroom.engine.text.batch.batch_sampling import BatchSampling, Sampled, needs_host
from greenroom.engine.text.batch.drafting import Drafting
from greenroom.engine.text.batch.grammar_masks import prepare_masks
from greenroom.engine.text.batch.pending_tokens import PendingTokens
from greenroom.engine.text.sequences.failures import SequenceFailures
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.engine.text.speculation.speculation import Speculation

_EVALUATE_STEPS = 64
"""Steps between evaluations of cache counters that no layer reads, so that their graph stays small."""


class DecodeStep:
    """Launches forward passes, reads the tokens of the previous step and samples the next ones.

    Args:
        model: Model, called as `model(tokens, cache=…)` with tokens of shape `[rows, 1]`; returns logits
            `[rows, 1, vocabulary]`. `position_shifts` are passed by row if position ids differ from cache
            indices.
        cache: KV cache; its sequences may change only between `finish_verification` and `launch`.
    """

    def __init__(self, model: Any, cache: BatchCache) -> None:
        self._model = model
        self._cache = cache
        self._sampling = BatchSampling()
        self._drafting = Drafting(cache)
        self._logits: mx.array | None = None
        self._sampled: Sampled | None = None
        self._pending: PendingTokens | None = None
        self._moved: tuple[Sequence, ...] = ()
        self._steps = 0

    @property
    def has_pending(self) -> bool:
        """True if `read` has tokens to yield."""
        return self._pending is not None

    @property
    def is_waiting(self) -> bool:
        """True while the launched step waits for a grammar mask; until then rows must not change."""
        return self._logits is not None

    @property
    def is_verifying(self) -> bool:
        """True if the launched step verifies draft tokens."""
        return self._drafting.is_verifying

    def finish_verification(self) -> bool:
        """Wait for the tokens that verify drafts; return whether there were any.

        The cache may then be shorter than after the last step.
        """
        pending = self._drafting.pop_accepted()
        if pending is None:
            return False
        self._pending = pending
        self._sampling.invalidate()
        return True

    def invalidate(self) -> None:
        """Discard the sampler after rows were added or compacted."""
        self._sampling.invalidate()

    def move(self, sequences: GenericSequence[Sequence]) -> None:
        """Mark sequences as moved: their tokens in flight are read here without awaiting their grammars."""
        self._moved = (*self._moved, *sequences)

    def discard_pending(self, sequence: Sequence) -> None:
        """Discard the token in flight of a preempted sequence."""
        if self._pending is not None:
            self._pending.discard(sequence)

    def launch(self, speculation: Speculation | None) -> int:
        """Launch the forward pass for all rows; call `finish_verification` first.

        Returns:
            Tokens added to every row of the cache; 0 if a step still waits for a grammar mask.
        """
        cache = self._cache
        if self.is_waiting or cache.active == 0 or self._has_sampled_last():
            return 0
        inputs = cache.inputs[:, None]
        drafted = self._drafting.draft(speculation, self._pending)
        if drafted is not None:
            inputs = mx.concatenate([inputs, drafted[None]], axis=1)
            self._logits = self._forward(inputs)[0]
            mx.async_eval(self._logits)
        else:
            self._logits = self._forward(inputs)[:, -1, :]
            if needs_host(cache.sequences):
                mx.async_eval(self._logits)
            else:
                self._sampled, _ = self._sampling.sample(self._logits, cache.sequences)
        self._steps += 1
        if self._steps % _EVALUATE_STEPS == 0:
            mx.async_eval(caches.state(cache.layers))
        return inputs.shape[1]

    def _forward(self, inputs: mx.array) -> mx.array:
        shifts = self._cache.position_shifts
        added = {"position_shifts": shifts} if shifts else {}
        logits: mx.array = self._model(inputs, cache=self._cache.layers, **added)
        return logits

    def read(self) -> Iterator[tuple[Sequence, int | None]]:
        """Yield the tokens that the last step sampled, with their sequences; the only wait in a step.

        A token of None was sampled from logits that are not finite: its sequence must end. Yields nothing
        while another thread computes the mask of a slow grammar for one of the tokens.
        """
        pending = self._pending
        if pending is None:
            return
        tokens = self._drafting.await_tokens(pending)
        waited_for = [
            None if index in pending.broken or sequence in self._moved else sequence
            for index, sequence in enumerate(pending.sequences)
        ]
        if not prepare_masks(waited_for, tokens):
            return
        self._pending, self._moved = None, ()
        scores = pending.await_scores()
        for index, (sequence, token) in enumerate(zip(pending.sequences, tokens, strict=True)):
            if sequence is not None and not sequence.finished:
                if index in pending.broken:
                    yield sequence, None
                    continue
                if sequence.logprobs is not None and index in scores:
                    sequence.logprobs.set_scores(scores[index])
                if index < pending.accepted:
                    sequence.metrics.accepted_tokens += 1
                is_last = index > 0 and index == len(tokens) - 1
                if is_last and sequence is self._cache.sequences[0] and self._has_sampled_last():
                    self._cache.remove(0)
                yield sequence, token

    def sample(self) -> SequenceFailures:
        """Sample the next tokens from the logits of `launch`; remove sequences that reach their token limit.

        Does nothing until the masks of slow grammars are ready.

        Returns:
            Sequences that failed; their tokens must not be read.
        """
        cache = self._cache
        if not (self._are_tokens_read() and prepare_masks(cache.sequences)):
            return []
        logits, self._logits = self._logits, None
        sampled, self._sampled = self._sampled, None
        if logits is None:
            return []
        if self._drafting.is_verifying:
            self._drafting.verify(logits)
            return []
        if cache.active == 0:
            return []
        failures: SequenceFailures = []
        if sampled is None:
            sampled, failures = self._sampling.sample(logits, cache.sequences)
        cache.inputs = sampled.tokens
        self._pending = PendingTokens(sampled.marked, tuple(cache.sequences), sampled.scored)
        for row, sequence in enumerate(cache.sequences):
            if sequence is not None:
                sequence.sampled += 1
                if sequence.sampled >= sequence.max_tokens:
                    cache.remove(row)
        return failures

    def _are_tokens_read(self) -> bool:
        """Return whether every grammar has received all sampled tokens."""
        return not any(
            sequence is not None and sequence.matcher is not None and sequence.generated < sequence.sampled
            for sequence in self._cache.sequences
        )

    def _has_sampled_last(self) -> bool:
        """Return whether the last token of the only sequence has been sampled."""
        sequences = self._cache.sequences
        sequence = sequences[0] if len(sequences) == 1 else None
        return sequence is not None and sequence.sampled >= sequence.max_tokens
