"""One decode step after the other for rows that share a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.batch.batch_sampling import BatchSampling, Sampled, needs_host
from greenroom.engine.batch.drafting import Drafting
from greenroom.engine.batch.grammar_masks import Refused
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

    def __init__(self, model: Any, shared: BatchCache) -> None:
        self._model = model
        self._shared = shared
        self._drawing = BatchSampling()
        self._drafting = Drafting(shared)
        self._logits: mx.array | None = None
        self._drawn: Sampled | None = None
        self._unread: PendingTokens | None = None
        self._steps = 0

    @property
    def has_unread(self) -> bool:
        """Whether `read` will hand out tokens."""
        return self._unread is not None

    @property
    def verifies(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._drafting.verifies

    def settle(self) -> bool:
        """Wait for tokens that are held against drafted ones; whether there were any.

        Then the cache may be shorter than the last step left it.
        """
        unread = self._drafting.take_accepted()
        if unread is None:
            return False
        self._unread = unread
        self._drawing.rows_changed()
        return True

    def rows_changed(self) -> None:
        """Rows have come, or been cut out."""
        self._drawing.rows_changed()

    def forget(self, row: Sequence) -> None:
        """Do not hand out the token of a row that will begin anew."""
        if self._unread is not None:
            self._unread.forget(row)

    def launch(self, speculation: Speculation | None) -> int:
        """Start the forward pass for all rows; call `settle` before.

        Returns:
            Tokens that it adds to the cache of every row.
        """
        shared = self._shared
        if shared.live == 0 or self._is_drawn():
            return 0
        inputs = shared.inputs[:, None]
        drafted = self._drafting.draft(speculation, self._unread)
        if drafted is not None:
            inputs = mx.concatenate([inputs, drafted[None]], axis=1)
            self._logits = self._model(inputs, cache=shared.layers)[0]
            mx.async_eval(self._logits)
        else:
            self._logits = self._model(inputs, cache=shared.layers)[:, -1, :]
            if needs_host(shared.rows):
                mx.async_eval(self._logits)
            else:
                self._drawn, _ = self._drawing.draw(self._logits, shared.rows)
        self._steps += 1
        if self._steps % _EVALUATE_STEPS == 0:
            mx.async_eval(caches.state(shared.layers))
        return inputs.shape[1]

    def read(self) -> Iterator[tuple[Sequence, int]]:
        """Tokens that the last step drew, with their rows: the only wait of a step."""
        unread, self._unread = self._unread, None
        if unread is None:
            return
        tokens = self._drafting.wait(unread)
        scores = unread.scores()
        for index, (row, token) in enumerate(zip(unread.rows, tokens, strict=True)):
            if row is not None and not row.finished:
                if row.logprobs is not None and index in scores:
                    row.logprobs.read(scores[index])
                row.accepted += index < unread.accepted
                if index and index == len(tokens) - 1 and row is self._shared.rows[0] and self._is_drawn():
                    self._shared.let_go(0)
                yield row, token

    def sample(self) -> Refused:
        """Have the next tokens drawn from the logits of `launch`; after its last one a row leaves.

        Returns:
            Rows that cannot go on; their tokens must not be read.
        """
        logits, self._logits = self._logits, None
        drawn, self._drawn = self._drawn, None
        shared = self._shared
        if logits is None:
            return []
        if self._drafting.verifies:
            self._drafting.verify(logits)
            return []
        if shared.live == 0:
            return []
        refused: Refused = []
        if drawn is None:
            drawn, refused = self._drawing.draw(logits, shared.rows)
        shared.inputs, scored = drawn
        self._unread = PendingTokens(shared.inputs, tuple(shared.rows), scored)
        for index, row in enumerate(shared.rows):
            if row is not None:
                row.sampled += 1
                if row.sampled >= row.max_tokens:
                    shared.let_go(index)
        return refused

    def _is_drawn(self) -> bool:
        """Whether the last token of the only row is known, but not handed out."""
        rows = self._shared.rows
        row = rows[0] if len(rows) == 1 else None
        return row is not None and row.sampled >= row.max_tokens
