"""Cooperative preparation of requests in short steps, so that one request does not block its thread."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

PENDING = "pending"
"""Value yielded while other threads work for the request, so that requests of the same kind may proceed."""

PreparationSteps = Generator[str | None, None, T]
"""Generator that yields at points where it can be suspended or abandoned, and returns its result."""


_POLL_SECONDS = 0.02


class StepSemaphore:
    """Semaphore that bounds concurrent work for requests across all preparing threads."""

    def __init__(self, count: int) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self._waiting = 0

    def acquire(self) -> PreparationSteps[None]:
        """Yield until the semaphore is acquired.

        Waiters split one polling interval. With a full interval each, polling would cost O(n²) and starve the
        holder.
        """
        if self._free.acquire(blocking=False):
            return
        self._count(1)
        try:
            while not self._free.acquire(timeout=_POLL_SECONDS / self._waiting):
                yield PENDING
        finally:
            self._count(-1)

    def release(self) -> None:
        self._free.release()

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change


def run_to_end(steps: PreparationSteps[T]) -> T:
    """Run the steps to the end without a pause and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
