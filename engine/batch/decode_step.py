"""One decode step after the other for rows that share a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.batch.batch_sampling import BatchSampling, Sampled, needs_host
from greenroom.engine.batch.drafting import Drafting
from greenroom.engine.batch.grammar_masks import GrammarFailures
from greenroom.engine.batch.pending_tokens import PendingTokens
from greenroom.engine.kv_cache import caches
from greenroom.engine.sequences.sequence import Sequence
from greenroom.engine.speculation.speculation import Speculation

_EVALUATE_STEPS = 64
"""Steps after which counters that no layer reads are evaluated, so that they do not pile up as a graph."""


class DecodeStep:
    """Launches steps, reads the tokens of the one before and has the next ones drawn.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, 1]`; returns logits `[rows, 1, vocabulary]`.
        shared: Others may add rows to it and take them out, between `settle` and `launch`.
    """

    def __init__(self, model: Any, cache: BatchCache) -> None:
        self._model = model
        self._cache = cache
        self._sampling = BatchSampling()
        self._drafting = Drafting(cache)
        self._logits: mx.array | None = None
        self._sampled: Sampled | None = None
        self._pending: PendingTokens | None = None
        self._steps = 0

    @property
    def has_pending(self) -> bool:
        """Whether `read` will hand out tokens."""
        return self._pending is not None

    @property
    def is_verifying(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._drafting.is_verifying

    def finish_verification(self) -> bool:
        """Wait for tokens that are held against drafted ones; whether there were any.

        Then the cache may be shorter than the last step left it.
        """
        unread = self._drafting.take_accepted()
        if unread is None:
            return False
        self._pending = unread
        self._sampling.invalidate()
        return True

    def invalidate(self) -> None:
        """Rows have come, or been cut out."""
        self._sampling.invalidate()

    def discard_pending(self, row: Sequence) -> None:
        """Do not hand out the token of a row that will begin anew."""
        if self._pending is not None:
            self._pending.discard(row)

    def launch(self, speculation: Speculation | None) -> int:
        """Start the forward pass for all rows; call `settle` before.

        Returns:
            Tokens that it adds to the cache of every row.
        """
        shared = self._cache
        if shared.active == 0 or self._has_sampled_last():
            return 0
        inputs = shared.inputs[:, None]
        drafted = self._drafting.draft(speculation, self._pending)
        if drafted is not None:
            inputs = mx.concatenate([inputs, drafted[None]], axis=1)
            self._logits = self._model(inputs, cache=shared.layers)[0]
            mx.async_eval(self._logits)
        else:
            self._logits = self._model(inputs, cache=shared.layers)[:, -1, :]
            if needs_host(shared.sequences):
                mx.async_eval(self._logits)
            else:
                self._sampled, _ = self._sampling.sample(self._logits, shared.sequences)
        self._steps += 1
        if self._steps % _EVALUATE_STEPS == 0:
            mx.async_eval(caches.state(shared.layers))
        return inputs.shape[1]

    def read(self) -> Iterator[tuple[Sequence, int]]:
        """Tokens that the last step drew, with their rows: the only wait of a step."""
        unread, self._pending = self._pending, None
        if unread is None:
            return
        tokens = self._drafting.await_tokens(unread)
        scores = unread.await_scores()
        for index, (row, token) in enumerate(zip(unread.sequences, tokens, strict=True)):
            if row is not None and not row.finished:
                if row.logprobs is not None and index in scores:
                    row.logprobs.set_scores(scores[index])
                row.accepted += index < unread.accepted
                is_last = index > 0 and index == len(tokens) - 1
                if is_last and row is self._cache.sequences[0] and self._has_sampled_last():
                    self._cache.remove(0)
                yield row, token

    def sample(self) -> GrammarFailures:
        """Have the next tokens drawn from the logits of `launch`; after its last one a row leaves.

        Returns:
            Rows that cannot go on; their tokens must not be read.
        """
        logits, self._logits = self._logits, None
        drawn, self._sampled = self._sampled, None
        shared = self._cache
        if logits is None:
            return []
        if self._drafting.is_verifying:
            self._drafting.verify(logits)
            return []
        if shared.active == 0:
            return []
        refused: GrammarFailures = []
        if drawn is None:
            drawn, refused = self._sampling.sample(logits, shared.sequences)
        shared.inputs, scored = drawn
        self._pending = PendingTokens(shared.inputs, tuple(shared.sequences), scored)
        for index, row in enumerate(shared.sequences):
            if row is not None:
                row.sampled += 1
                if row.sampled >= row.max_tokens:
                    shared.remove(index)
        return refused

    def _has_sampled_last(self) -> bool:
        """Whether the last token of the only row is known, but not handed out."""
        rows = self._cache.sequences
        row = rows[0] if len(rows) == 1 else None
        return row is not None and row.sampled >= row.max_tokens
