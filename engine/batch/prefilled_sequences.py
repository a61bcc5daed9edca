"""Sequences on their way into a batch, from prefill or from another batch."""

from __future__ import annotations

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.sequences.sequence import Sequence


@attrs.frozen(eq=False)
class PrefilledSequences:
    """Sequences of which all is in the cache but for their last tokens, which are their first inputs.

    Args:
        cache: Plain for one sequence, batched for more.
        inputs: Those tokens, `[rows]` (uint32), which may be in flight; by default what the prompts end with.
    """

    sequences: tuple[Sequence, ...]
    cache: Cache
    inputs: mx.array = attrs.field()

    @inputs.default
    def _last_of_prompts(self) -> mx.array:
        return mx.array([sequence.prefill_tokens[-1] for sequence in self.sequences], dtype=mx.uint32)

    @property
    def batchable(self) -> bool:
        """Whether these sequences can share a cache with others."""
        return len(self.sequences) > 1 or caches.can_batch(self.cache)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the cache."""
        return caches.size_in_bytes(self.cache) // len(self.sequences)

    def without(self, sequence: Sequence) -> PrefilledSequences | None:
        """Return the others; None if there are none. The cache may be cut in place."""
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
