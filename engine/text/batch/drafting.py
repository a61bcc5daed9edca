"""Draft tokens of a lone sequence, from verification to acceptance."""

from __future__ import annotations

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.batch.batch_cache import BatchCache
from greenroom.engine.text.batch.pending_tokens import PendingTokens
from greenroom.engine.text.speculation.speculation import Speculation
from greenroom.engine.text.speculation.verification import Verification


class Drafting:
    """Drafts of successive steps: `draft`, `verify`, then `pop_accepted` before the next step.

    Args:
        cache: KV cache of the sequence; other sequences may share it while nothing is drafted.
    """

    def __init__(self, cache: BatchCache) -> None:
        self._cache = cache
        self._speculation: Speculation | None = None
        self._drafts: mx.array | None = None
        self._verification: Verification | None = None

    @property
    def is_verifying(self) -> bool:
        """True if the launched step verifies draft tokens."""
        return self._drafts is not None

    def draft(self, speculation: Speculation | None, pending: PendingTokens | None) -> mx.array | None:
        """Return draft tokens to follow the next input, `[drafted]` (uint32); None for a plain step.

        Args:
            speculation: Proposes and measures drafts; None while the sequence is not alone.
            pending: Tokens not yet read; awaited only if drafts are worth it.
        """
        self._speculation = speculation
        if speculation is None:
            return None
        (sequence,) = self._cache.sequences
        if sequence is None or not caches.can_trim(self._cache.layers):
            return None
        in_flight = pending is not None and pending.in_flight
        self._drafts = speculation.propose(sequence, lambda: self.await_tokens(pending), in_flight)
        return self._drafts

    def await_tokens(self, pending: PendingTokens | None) -> list[int]:
        """Return the tokens as soon as they are computed, and record that the step has ended."""
        if pending is None:
            return []
        arrives = pending.in_flight
        tokens = pending.await_tokens()
        if arrives and self._speculation is not None:
            self._speculation.record_step()
        return tokens

    def verify(self, logits: mx.array) -> None:
        """Launch sampling at every draft position, unless the sequence was removed meanwhile.

        Args:
            logits: Logits of the step, `[drafted + 1, vocabulary]`.
        """
        (sequence,) = self._cache.sequences
        drafts, self._drafts = self._drafts, None
        if sequence is not None and drafts is not None:
            self._verification = Verification(sequence, drafts, logits)

    def pop_accepted(self) -> PendingTokens | None:
        """Wait for the verification that `verify` launched, and trim rejected drafts from the cache.

        Returns:
            The sequence's next tokens; None if nothing was launched.
        """
        verification, self._verification = self._verification, None
        if verification is None:
            return None
        sequence, drafted, tokens = verification.sequence, verification.drafts.shape[0], verification.tokens()
        accepted = len(tokens) - 1
        if self._speculation is not None:
            self._speculation.record_verified(drafted, accepted)
        sequence.metrics.drafted_tokens += drafted
        sequence.sampled += len(tokens)
        caches.trim(self._cache.layers, drafted - accepted)
        self._cache.inputs = mx.array(tokens[-1:], dtype=mx.uint32)
        sequences = (sequence,) * len(tokens)
        return PendingTokens(tokens, sequences, verification.scores, accepted, verification.broken)
