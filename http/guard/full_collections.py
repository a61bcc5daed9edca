"""When Python looks for garbage among all objects: not while requests hold a great many of them."""

from __future__ import annotations

import gc

MAX_OBJECTS = 50_000
"""Arrays and objects in the bodies of all requests under way above which full collections are put off: each
becomes some three Python objects, and a collection that goes through them keeps the GIL for 20 ms."""
MAX_REQUESTS = 10_000
"""For how many requests they are put off at most; each leaves some 10 kB of garbage in cycles."""

USUAL = gc.get_threshold()
"""How many young objects, and collections of younger ones, a collection waits for otherwise."""
_NEVER = 1 << 30


class FullCollections:
    """Puts off full garbage collections while requests hold many objects.

    What a request holds has no cycles, so that nothing is found in it, and it is freed without a collection.
    Those of young objects go on: they are short, and find most of what there is.
    """

    def __init__(self) -> None:
        self._held = 0
        self._requests = 0

    def hold(self, objects: int) -> None:
        """Count the objects of one more request."""
        self._held += objects
        if self._held > MAX_OBJECTS:
            gc.set_threshold(*USUAL[:2], _NEVER)

    def release(self, objects: int) -> None:
        """Count the objects of a request that has ended."""
        self._held -= objects
        if self._held <= MAX_OBJECTS:
            gc.set_threshold(*USUAL)
            self._requests = 0
            return
        self._requests += 1
        if self._requests >= MAX_REQUESTS:
            self._requests = 0
            gc.collect()
