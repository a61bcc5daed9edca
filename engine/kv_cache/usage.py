"""How large a cache is and how much room is left in it, without measuring it at every step."""

from __future__ import annotations

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.size_model import CacheSizeModel, CacheUsage


class CacheUsageTracker:
    """Remembers what a cache takes until a change, or until steps have filled the room in it."""

    def __init__(self) -> None:
        self._extent: CacheUsage | None = None
        self._since = 0

    def of(self, cache: Cache, rows: int, footprint: CacheSizeModel) -> CacheUsage:
        """What a cache of so many rows takes; measured anew when something has changed it."""
        if self._extent is None:
            self._extent, self._since = CacheUsage.of(cache, rows, footprint), 0
        return self._extent

    def grows(self, cache: Cache, rows: int, footprint: CacheSizeModel, ahead: int) -> bool:
        """Whether the next step makes it larger, with so many drafted tokens."""
        return self.of(cache, rows, footprint).room <= self._since + ahead

    def stepped(self, tokens: int) -> None:
        """Every row has got so many tokens."""
        self._since += tokens
        if self._extent is not None and self._since > self._extent.room:
            self._extent = None

    def changed(self) -> None:
        """The cache was copied, grown or trimmed."""
        self._extent = None
