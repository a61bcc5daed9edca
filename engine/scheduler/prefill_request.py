"""A prompt on its way into the batch, and how far it has come."""

from __future__ import annotations

import time

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.events import PromptProgress


@attrs.define(eq=False)
class PrefillRequest:
    """A prompt that is not wholly computed.

    Args:
        embeddings: Input embeddings `[prompt, hidden]` instead of those of the token ids. The last position
            is decoded from its token id.
        cache: Plain; made when the prompt's turn comes.
        done: Tokens that the cache holds, or will once the slice under way is evaluated.
        client: Who asks.
        conversation: Which of the client's conversations it belongs to.
        stops: Where slices have to end.
        version: What was known of prefixes when `done` was found, before the prompt's turn came.
    """

    sequence: Sequence
    embeddings: mx.array | None = None
    cache: Cache | None = None
    computed: int = 0
    client: str = ""
    conversation: str = ""
    checkpoints: tuple[int, ...] = ()
    cache_version: int = -1

    @property
    def until_checkpoint(self) -> int:
        """Tokens of the longest slice."""
        return next(
            (stop - self.computed for stop in self.checkpoints if stop > self.computed), self.remaining
        )

    @property
    def remaining(self) -> int:
        """Tokens still to compute; the last one of the prompt is the row's first decode step."""
        return len(self.sequence.prefill_tokens) - 1 - self.computed

    @property
    def progress(self) -> PromptProgress:
        """How far it has come, as clients are told."""
        row, total = self.sequence, len(self.sequence.prefill_tokens)
        processed = self.computed if self.remaining else total
        assert row.metrics.started_at is not None
        return PromptProgress(
            processed, total, row.metrics.cached_tokens, time.perf_counter() - row.metrics.started_at
        )
