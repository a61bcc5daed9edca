"""Growth of a batch's KV cache, spread over steps so that no single step copies all of it."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.growth import GROWN_AHEAD, GROWTH_STEP, LARGE_BYTES
from greenroom.engine.kv_cache.size_model import CacheSizeModel, CacheUsage
from greenroom.engine.text.batch.batch_cache import BatchCache


class CacheGrowth:
    """Caches the measured size of a KV cache until it changes or its allocated memory is full."""

    def __init__(self, cache: BatchCache) -> None:
        self._cache = cache
        self._usage: CacheUsage | None = None
        self._advanced = 0

    def usage(self, size_model: CacheSizeModel) -> CacheUsage:
        """Return the cache's usage, measured again only after a change."""
        if self._usage is None:
            rows = len(self._cache.sequences)
            self._usage, self._advanced = CacheUsage.of(self._cache.layers, rows, size_model), 0
        return self._usage

    def is_due(self, size_model: CacheSizeModel, lookahead: int = 0) -> bool:
        """Return whether the next step, with `lookahead` draft tokens, must grow the cache."""
        return bool(self._cache.active) and self._free_tokens(size_model) <= lookahead

    def grow(self, lookahead: int = 0) -> None:
        """Grow the cache for the next steps, one layer at a time, to limit peak memory."""
        caches.grow(caches.layers_to_grow(self._cache.layers, lookahead), GROWTH_STEP)
        self.invalidate()

    def grow_ahead(self, size_model: CacheSizeModel, lookahead: int, reserve: Callable[[int], bool]) -> None:
        """Grow a large cache ahead of time, a few layers per step, so that no step takes long.

        Args:
            lookahead: Draft tokens of the next step.
            reserve: Reserves bytes for the copies; returns whether they fit.
        """
        if not self.is_due(size_model, GROWN_AHEAD) or self.usage(size_model).copied < LARGE_BYTES:
            return
        layers = caches.layers_to_grow(self._cache.layers, GROWN_AHEAD)
        count = -(-len(layers) // max(1, self._free_tokens(size_model) - lookahead))
        if count < len(layers) and reserve(count * self.usage(size_model).largest_layer):
            caches.grow(layers[:count], GROWTH_STEP, wait=False)
            self.invalidate()

    def advance(self, tokens: int) -> None:
        """Count tokens added to every row."""
        self._advanced += tokens
        if self._usage is not None and self._advanced > self._usage.free_tokens:
            self._usage = None

    def invalidate(self) -> None:
        """Discard the measured usage: the cache was copied, grown or trimmed."""
        self._usage = None

    def _free_tokens(self, size_model: CacheSizeModel) -> int:
        return self.usage(size_model).free_tokens - self._advanced
