"""Prefilled sequences on their way into a batch, from prefill or from another batch."""

from __future__ import annotations

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.text.sequences.sequence import Sequence


@attrs.frozen(eq=False)
class PrefilledSequences:
    """Sequences whose tokens are all cached except the last ones, which are the next inputs.

    Args:
        cache: Unbatched cache for one sequence, batched for more.
        inputs: Next input tokens, `[rows]` (uint32), possibly in flight; by default the prompts' last tokens.
    """

    sequences: tuple[Sequence, ...]
    cache: Cache
    inputs: mx.array = attrs.field()

    @inputs.default
    def _last_of_prompts(self) -> mx.array:
        return mx.array([sequence.prefill_tokens[-1] for sequence in self.sequences], dtype=mx.uint32)

    @property
    def batchable(self) -> bool:
        """True if the sequences can share a cache with others."""
        return len(self.sequences) > 1 or caches.can_batch(self.cache)

    @property
    def row_bytes(self) -> int:
        """Bytes per row of the cache."""
        return caches.size_in_bytes(self.cache) // len(self.sequences)

    def without(self, sequence: Sequence) -> PrefilledSequences | None:
        """Return the other sequences, or None if there are none; the cache may be changed in place."""
        kept_rows = [row for row, member in enumerate(self.sequences) if member is not sequence]
        if len(kept_rows) == len(self.sequences):
            return self
        if not kept_rows:
            return None
        kept, inputs = tuple(self.sequences[row] for row in kept_rows), self.inputs[mx.array(kept_rows)]
        if len(kept_rows) == 1:
            return PrefilledSequences(kept, caches.extract(self.cache, kept_rows[0]), inputs)
        caches.filter_rows(self.cache, kept_rows)
        return PrefilledSequences(kept, self.cache, inputs)
