"""State of a request during prefill."""

from __future__ import annotations

import time

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.text.prefix_cache.restoration import Restoration
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.events.events import PromptProgress


@attrs.define(eq=False)
class PrefillRequest:
    """A sequence whose prompt is not fully computed.

    Args:
        cache: Unbatched KV cache; created when the first chunk is due.
        restoration: Pending copy of a cached prefix into the cache.
        computed: Tokens in the cache, including pending restoration and the chunk in flight.
        client: Client that sent the request.
        conversation: Key of the client's conversation.
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
        """Prefill progress as reported to clients."""
        sequence, total = self.sequence, len(self.sequence.prefill_tokens)
        processed = self.computed if self.remaining else total
        metrics = sequence.metrics
        assert metrics.started_at is not None
        elapsed = time.perf_counter() - metrics.started_at
        return PromptProgress(processed, total, metrics.cached_tokens, elapsed)
