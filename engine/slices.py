"""Preparing a request bit by bit, so that others of the same thread need not wait for all of it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

WAITS = "waits"
"""What is yielded where something else works for the request, so that its like may go on meanwhile."""

Slices = Generator[str | None, None, T]
"""Yields wherever it can be left for a while, or for good, and returns what it has made."""


_LOOK_SECONDS = 0.02


class SliceSemaphore:
    """Bounds what works for requests at once, of all threads that prepare them.

    Args:
        count: How many may hold it.
    """

    def __init__(self, count: int) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self._waiting = 0

    def acquire(self) -> Slices[None]:
        """Yield until it is held.

        All who wait share the time of one look: where each took that, who holds it would be looked at behind
        all of them, and however little there is to do, they would take the square of their number.
        """
        if self._free.acquire(blocking=False):
            return
        self._count(1)
        try:
            while not self._free.acquire(timeout=_LOOK_SECONDS / self._waiting):
                yield WAITS
        finally:
            self._count(-1)

    def release(self) -> None:
        """Let somebody else hold it."""
        self._free.release()

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change


def run_slices(slices: Slices[T]) -> T:
    """Return what slices make, without a pause."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            made: T = end.value
            return made
