"""Rows on their way into a group, from prefill or from another group."""

from __future__ import annotations

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.sequences.sequence import Sequence


@attrs.frozen(eq=False)
class PrefilledSequences:
    """Rows of which all is in the cache but for their last tokens, which are their first inputs.

    Args:
        cache: Plain for one row, batched for more.
        inputs: Those tokens, `[rows]` (uint32), which may be under way; by default what the prompts end with.
    """

    sequences: tuple[Sequence, ...]
    cache: Cache
    inputs: mx.array = attrs.field()

    @inputs.default
    def _last_of_prompts(self) -> mx.array:
        return mx.array([row.prefill_tokens[-1] for row in self.sequences], dtype=mx.uint32)

    @property
    def batchable(self) -> bool:
        """Whether these rows can share a cache with others."""
        return len(self.sequences) > 1 or caches.can_batch(self.cache)

    def without(self, sequence: Sequence) -> PrefilledSequences | None:
        """What is left if a row does not come; None if it is nothing."""
        keep = [index for index, member in enumerate(self.sequences) if member is not sequence]
        if len(keep) == len(self.sequences):
            return self
        if not keep:
            return None
        rows, inputs = tuple(self.sequences[index] for index in keep), self.inputs[mx.array(keep)]
        if len(keep) == 1:
            return PrefilledSequences(rows, caches.extract(self.cache, keep[0]), inputs)
        caches.filter_rows(self.cache, keep)
        return PrefilledSequences(rows, self.cache, inputs)
