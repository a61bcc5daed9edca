"""Drafted tokens of a lone row: from the step that verifies them to what comes of it."""

from __future__ import annotations

import mlx.core as mx

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.batch.pending_tokens import PendingTokens
from greenroom.engine.kv_cache import caches
from greenroom.engine.speculation.speculation import Speculation
from greenroom.engine.speculation.verification import Drafts, Verification


class Drafting:
    """Follows the drafts of one step after the other: `draft`, `verify`, and `settle` before the next.

    Args:
        shared: Where the row is; it may have others beside it while nothing is drafted.
    """

    def __init__(self, cache: BatchCache) -> None:
        self._cache = cache
        self._speculation: Speculation | None = None
        self._drafts: Drafts | None = None
        self._verification: Verification | None = None

    @property
    def is_verifying(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._drafts is not None

    def draft(self, speculation: Speculation | None, pending: PendingTokens | None) -> mx.array | None:
        """What may follow the row's next input: `[drafted]` (uint32); None for a step without drafts.

        Args:
            speculation: Makes drafts and learns from them; None while the row is not alone.
            unread: Tokens of the row that it has not taken; they are waited for where that is worth it.
        """
        self._speculation = speculation
        if speculation is None:
            return None
        (row,) = self._cache.sequences
        if row is None or not caches.can_trim(self._cache.layers):
            return None
        waiting = pending is not None and pending.in_flight
        self._drafts = speculation.propose(row, lambda: self.await_tokens(pending), waiting)
        return None if self._drafts is None else self._drafts.tokens

    def await_tokens(self, pending: PendingTokens | None) -> list[int]:
        """Those tokens on the host; when they come tells what a step takes."""
        if pending is None:
            return []
        arrives = pending.in_flight
        tokens = pending.await_tokens()
        if arrives and self._speculation is not None:
            self._speculation.record_step()
        return tokens

    def verify(self, logits: mx.array) -> None:
        """Start drawing at every place of the drafts, unless their row has left meanwhile.

        Args:
            logits: `[drafted + 1, vocabulary]`.
        """
        (row,) = self._cache.sequences
        drafts, self._drafts = self._drafts, None
        if row is not None and drafts is not None:
            self._verification = Verification(row, drafts, logits)

    def take_accepted(self) -> PendingTokens | None:
        """Wait for what `verify` started, and have the cache forget what was wrong of the drafts.

        Returns:
            The row's next tokens; None if nothing was started.
        """
        verification, self._verification = self._verification, None
        if verification is None:
            return None
        row, drafts, tokens = verification.row, verification.drafts, verification.tokens()
        accepted = len(tokens) - 1
        if self._speculation is not None:
            self._speculation.record_verified(drafts, accepted)
        row.drafted += drafts.count
        row.sampled += len(tokens)
        caches.trim(self._cache.layers, drafts.count - accepted)
        self._cache.inputs = mx.array(tokens[-1:], dtype=mx.uint32)
        return PendingTokens(tokens, (row,) * len(tokens), verification.scores, accepted)
