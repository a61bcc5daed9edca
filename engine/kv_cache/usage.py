"""How large a cache is and how many tokens still fit in, without measuring it at every step."""

from __future__ import annotations

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.size_model import CacheSizeModel, CacheUsage


class CacheUsageTracker:
    """Remembers what a cache takes until it is changed, or until its allocated memory is full."""

    def __init__(self) -> None:
        self._usage: CacheUsage | None = None
        self._advanced = 0

    def usage(self, cache: Cache, rows: int, size_model: CacheSizeModel) -> CacheUsage:
        """Return what a cache of so many rows takes; it is measured again after a change only."""
        if self._usage is None:
            self._usage, self._advanced = CacheUsage.of(cache, rows, size_model), 0
        return self._usage

    def will_grow(self, cache: Cache, rows: int, size_model: CacheSizeModel, lookahead: int) -> bool:
        """Return whether the next step makes the cache larger, with so many drafted tokens."""
        return self.usage(cache, rows, size_model).free_tokens <= self._advanced + lookahead

    def advance(self, tokens: int) -> None:
        """Count so many more tokens in every row."""
        self._advanced += tokens
        if self._usage is not None and self._advanced > self._usage.free_tokens:
            self._usage = None

    def invalidate(self) -> None:
        """Measure anew next time: the cache was copied, grown or trimmed."""
        self._usage = None
