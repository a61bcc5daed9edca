"""Buffers of a device, of which a process may have only so many: 499,000 on macOS, whatever their sizes.

One more and MLX raises in whatever is computed, of any model. Weights and what is computed in passing have
thousands. Prefix caches have hundreds of thousands if nobody counts, so these are bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_CACHED_SHARE = 4
"""Prefix caches of all models have one part in so many of the buffers."""
_KNOWN_SHARE = 2
"""They and running caches together have one in so many; the rest is for what nobody counts."""


class BufferBudget:
    """Counts the buffers of all models of the process. May be used from any thread.

    Args:
        limit: Of the device; None is no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._parts: list[BufferPart] = []

    @property
    def cached(self) -> int:
        """Buffers of all prefix caches."""
        return sum(part.cached for part in self._parts)

    @property
    def cached_limit(self) -> int | None:
        """Buffers that all prefix caches may have now; None is no limit."""
        if self.limit is None:
            return None
        running = sum(part.running for part in self._parts)
        return max(0, min(self.limit // _CACHED_SHARE, self.limit // _KNOWN_SHARE - running))

    def open_part(self, on_request: Callable[[], None] = lambda: None) -> BufferPart:
        """Return the part of one more model, which has no buffers yet.

        Args:
            on_request: Called, on any thread, when it is to evict; must not block.
        """
        with self._lock:
            part = BufferPart(self, self._lock, on_request)
            self._parts.append(part)
            return part

    # What follows is for parts, which hold the lock.

    def available(self, part: BufferPart) -> int | None:
        """Return the buffers that a model's prefix cache may have now; None is no limit."""
        limit = self.cached_limit
        return None if limit is None else max(0, limit - (self.cached - part.cached))

    def request_eviction(self, missing: int, requester: BufferPart | None = None) -> None:
        """Request that prefix caches evict: the largest first, to an equal share if another model asks."""
        holders = [part for part in self._parts if part is not requester and part.cached]
        fair = (self.cached_limit or 0) // (len(holders) + 1) if requester is not None else 0
        for part in sorted(holders, key=lambda part: part.cached, reverse=True):
            requested = min(missing, part.cached - fair)
            if requested <= 0:
                break
            part.requested = max(part.requested, requested)
            missing -= requested
            part.on_request()

    def close(self, part: BufferPart) -> None:
        """Remove a part."""
        if part in self._parts:
            self._parts.remove(part)


class BufferPart:
    """Buffers of one model. Written by its own thread only, and read by all.

    Attributes:
        cached: Of its prefix cache.
        running: Of caches of prompts and answers under way.
        requested: Of the prefix cache, that are to be evicted.
        on_request: Called when that happens.
    """

    def __init__(self, budget: BufferBudget, lock: threading.Lock, on_request: Callable[[], None]) -> None:
        self.cached = self.running = self.requested = 0
        self.on_request = on_request
        self._budget = budget
        self._lock = lock

    @property
    def cached_limit(self) -> int | None:
        """Buffers that the prefix caches of all models may have; None is no limit."""
        return self._budget.cached_limit

    def charge_cached(self, count: int) -> int:
        """Set the buffers of the prefix cache to as many of these as there are; return how many.

        What is missing is requested of other models that have more than an equal share.
        """
        with self._lock:
            available = self._budget.available(self)
            if available is not None and count > available:
                self._budget.request_eviction(count - available, self)
                count = available
            self.cached = count
            return count

    def charge_running(self, count: int) -> None:
        """Set the buffers of running caches; what they leave no room for is requested of prefix caches."""
        if count == self.running:
            return
        with self._lock:
            self.running = count
            limit = self._budget.cached_limit
            if limit is not None and self._budget.cached > limit:
                self._budget.request_eviction(self._budget.cached - limit)

    def pop_requested(self) -> int:
        """Return how many buffers of the prefix cache are to be evicted; that is then forgotten."""
        with self._lock:
            requested, self.requested = self.requested, 0
            return requested

    def close(self) -> None:
        """Release everything."""
        with self._lock:
            self.cached = self.running = self.requested = 0
            self._budget.close(self)
