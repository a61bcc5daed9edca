"""A request whose prompt is being computed, and how far it has come."""

from __future__ import annotations

import time

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.prefix_cache.restoration import Restoration
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.events import PromptProgress


@attrs.define(eq=False)
class PrefillRequest:
    """A sequence whose prompt is not wholly computed.

    Args:
        cache: Plain; made when the first chunk is due.
        restoration: What still has to fill the cache with a prefix that was computed before.
        computed: Tokens that the cache holds, or will once that is done and the chunk under way is evaluated.
        client: Who asks.
        conversation: Which of the client's conversations it belongs to.
        checkpoints: Where chunks have to end, in tokens.
        on_disk: Whether files have to be read for what is cached.
        alone: It shares no chunk with others: one that it shared has failed, or its prompt is scored.
        cache_version: Of the prefix cache when `computed` was matched, before the first chunk was due.
    """

    sequence: Sequence
    cache: Cache | None = None
    restoration: Restoration | None = None
    computed: int = 0
    client: str = ""
    conversation: str = ""
    checkpoints: tuple[int, ...] = ()
    on_disk: bool = False
    alone: bool = attrs.field(
        default=attrs.Factory(lambda self: self.sequence.prompt_logprobs is not None, takes_self=True)
    )
    cache_version: int = -1

    @property
    def until_checkpoint(self) -> int:
        """Tokens of the longest chunk that may be computed next."""
        following = (checkpoint - self.computed for checkpoint in self.checkpoints)
        longest = next((tokens for tokens in following if tokens > 0), self.remaining)
        scores, features = self.sequence.prompt_logprobs, self.sequence.features
        if features is not None:
            longest = min(longest, features.ready(self.computed))
        return longest if scores is None or scores.is_complete else min(longest, scores.chunk)

    def chunk(self, tokens: int) -> int:
        """Return how many tokens are computed next, if about so many shall be; 0 if features come first."""
        count, features = min(self.until_checkpoint, tokens), self.sequence.features
        return count if features is None else features.chunk(self.computed, count)

    @property
    def remaining(self) -> int:
        """Tokens still to compute; the last one of the prompt is the sequence's first decode step."""
        return len(self.sequence.prefill_tokens) - 1 - self.computed

    @property
    def progress(self) -> PromptProgress:
        """How far it has come, as clients are told."""
        sequence, total = self.sequence, len(self.sequence.prefill_tokens)
        processed = self.computed if self.remaining else total
        metrics = sequence.metrics
        assert metrics.started_at is not None
        elapsed = time.perf_counter() - metrics.started_at
        return PromptProgress(processed, total, metrics.cached_tokens, elapsed)
