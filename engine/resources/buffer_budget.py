"""Budget of device buffers; macOS allows a process 499,000 of any size.

With one more, MLX raises in any computation of any model. Weights and temporary results take thousands, while
prefix caches would take hundreds of thousands, so these are limited.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_CACHED_SHARE = 4  # Divisor of the buffer limit that yields the limit of all prefix caches
_KNOWN_SHARE = 2
"""Divisor of the buffer limit that yields the limit of prefix caches and running caches together.

The rest is for buffers that are not counted.
"""


class BufferBudget:
    """Counts the buffers of all models in the process. Thread-safe. `limit`: limit of the device; None for no
    limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._parts: list[BufferPart] = []

    @property
    def cached(self) -> int:
        return sum(part.cached for part in self._parts)

    @property
    def cached_limit(self) -> int | None:
        """Limit on the buffers of all prefix caches now; None for no limit."""
        if self.limit is None:
            return None
        running = sum(part.running for part in self._parts)
        return max(0, min(self.limit // _CACHED_SHARE, self.limit // _KNOWN_SHARE - running))

    def open_part(self, on_request: Callable[[], None] = lambda: None) -> BufferPart:
        """Return a new, empty part for a model. `on_request`: callback for eviction requests, called on any
        thread; must not block.
        """
        with self._lock:
            part = BufferPart(self, self._lock, on_request)
            self._parts.append(part)
            return part

    # Parts call the methods below while they hold the lock.

    def available(self, part: BufferPart) -> int | None:
        """Return the buffers that a model's prefix cache may have now; None for no limit."""
        limit = self.cached_limit
        return None if limit is None else max(0, limit - (self.cached - part.cached))

    def request_eviction(self, missing: int, requester: BufferPart | None = None) -> None:
        """Request evictions from prefix caches, largest first; for a model, only down to an equal share."""
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
        if part in self._parts:
            self._parts.remove(part)


class BufferPart:
    """Buffers of one model; only its own thread writes them, all threads may read them.

    Attributes:
        cached: Number of buffers in its prefix cache.
        running: Number of buffers in the caches of running prompts and answers.
        requested: Number of prefix cache buffers to evict.
        on_request: Callback for eviction requests.
    """

    def __init__(self, budget: BufferBudget, lock: threading.Lock, on_request: Callable[[], None]) -> None:
        self.cached = self.running = self.requested = 0
        self.on_request = on_request
        self._budget = budget
        self._lock = lock

    @property
    def cached_limit(self) -> int | None:
        """Limit on the buffers of all models' prefix caches; None for no limit."""
        return self._budget.cached_limit

    def charge_cached(self, count: int) -> int:
        """Set the buffers of the prefix cache to as many of these as are available; return that number.

        Missing buffers are requested from other models that have more than an equal share.
        """
        with self._lock:
            available = self._budget.available(self)
            if available is not None and count > available:
                self._budget.request_eviction(count - available, self)
                count = available
            self.cached = count
            return count

    def charge_running(self, count: int) -> None:
        """Set the buffers of running caches; request the buffers they lack from prefix caches."""
        if count == self.running:
            return
        with self._lock:
            self.running = count
            limit = self._budget.cached_limit
            if limit is not None and self._budget.cached > limit:
                self._budget.request_eviction(self._budget.cached - limit)

    def pop_requested(self) -> int:
        """Return the number of prefix cache buffers to evict, and reset it."""
        with self._lock:
            requested, self.requested = self.requested, 0
            return requested

    def close(self) -> None:
        with self._lock:
            self.cached = self.running = self.requested = 0
            self._budget.close(self)
