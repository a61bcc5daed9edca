"""Postponement of full garbage collections while requests hold many objects."""

from __future__ import annotations

import gc

MAX_OBJECTS = 50_000
"""Limit on JSON arrays and objects of all requests above which full collections are postponed.

Each becomes some three Python objects, and a full collection over that many holds the GIL for 20 ms.
"""
MAX_REQUESTS = 10_000
"""Largest number of requests without a full collection; each leaves some 10 kB of cyclic garbage."""

USUAL = gc.get_threshold()
"""Thresholds of Python's garbage collector at the start."""
_NEVER = 1 << 30


class GcGuard:
    """Postpones full garbage collections while requests hold many objects.

    Decoded bodies have no cycles and are freed by reference counting, so that a full collection finds nothing
    in them. Collections of young objects continue: they are short, and find most garbage.
    """

    def __init__(self) -> None:
        self._held = 0
        self._requests = 0

    def hold(self, objects: int) -> None:
        self._held += objects
        if self._held > MAX_OBJECTS:
            gc.set_threshold(*USUAL[:2], _NEVER)

    def release(self, objects: int) -> None:
        """Subtract the objects of a finished request."""
        self._held -= objects
        if self._held <= MAX_OBJECTS:
            gc.set_threshold(*USUAL)
            self._requests = 0
            return
        self._requests += 1
        if self._requests >= MAX_REQUESTS:
            self._requests = 0
            gc.collect()
