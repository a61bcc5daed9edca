"""How large a batch's cache is, when it grows, and how it does so without a step that copies all of it."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.growth import GROWN_AHEAD, GROWTH_STEP, LARGE_BYTES
from greenroom.engine.kv_cache.size_model import CacheSizeModel, CacheUsage


class CacheGrowth:
    """Remembers what a cache takes until it is changed, or until its allocated memory is full."""

    def __init__(self, cache: BatchCache) -> None:
        self._cache = cache
        self._usage: CacheUsage | None = None
        self._advanced = 0

    def usage(self, size_model: CacheSizeModel) -> CacheUsage:
        """Return what the cache takes; it is measured again after a change only."""
        if self._usage is None:
            rows = len(self._cache.sequences)
            self._usage, self._advanced = CacheUsage.of(self._cache.layers, rows, size_model), 0
        return self._usage

    def is_due(self, size_model: CacheSizeModel, lookahead: int = 0) -> bool:
        """Return whether the next step makes the cache larger, with so many drafted tokens."""
        return bool(self._cache.active) and self._free_tokens(size_model) <= lookahead

    def grow(self, lookahead: int = 0) -> None:
        """Make room for the next steps, layer by layer, which takes less memory meanwhile than a step."""
        caches.grow(caches.layers_to_grow(self._cache.layers, lookahead), GROWTH_STEP)
        self.invalidate()

    def grow_ahead(self, size_model: CacheSizeModel, lookahead: int, reserve: Callable[[int], bool]) -> None:
        """Make room for later steps, if the cache is large: a part at each step, so that none takes long.

        Args:
            lookahead: Drafted tokens of the next step.
            reserve: Reserves bytes for the copies; returns whether they are there.
        """
        if not self.is_due(size_model, GROWN_AHEAD) or self.usage(size_model).copied < LARGE_BYTES:
            return
        layers = caches.layers_to_grow(self._cache.layers, GROWN_AHEAD)
        count = -(-len(layers) // max(1, self._free_tokens(size_model) - lookahead))
        if count < len(layers) and reserve(count * self.usage(size_model).largest_layer):
            caches.grow(layers[:count], GROWTH_STEP, wait=False)
            self.invalidate()

    def advance(self, tokens: int) -> None:
        """Count so many more tokens in every row."""
        self._advanced += tokens
        if self._usage is not None and self._advanced > self._usage.free_tokens:
            self._usage = None

    def invalidate(self) -> None:
        """Measure anew next time: the cache was copied, grown or trimmed."""
        self._usage = None

    def _free_tokens(self, size_model: CacheSizeModel) -> int:
        return self.usage(size_model).free_tokens - self._advanced
