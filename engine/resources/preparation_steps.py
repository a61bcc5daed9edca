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


class ClientSemaphore:
    """Semaphore of which each client has at most one. `count`: number of all clients' work at once."""

    def __init__(self, count: int) -> None:
        self._all = StepSemaphore(count)
        self._lock = threading.Lock()
        self._turns: dict[str, tuple[StepSemaphore, int]] = {}

    def run(self, client: str, work: PreparationSteps[T]) -> PreparationSteps[T]:
        """Run the work when it is its turn; yield until then, and as the work does."""
        turns = self._enter(client)
        try:
            yield from turns.acquire()
            try:
                yield from self._all.acquire()
                try:
                    return (yield from work)
                finally:
                    self._all.release()
            finally:
                turns.release()
        finally:
            self._leave(client)

    def _enter(self, client: str) -> StepSemaphore:
        """Return the client's own semaphore, and count one more user of it."""
        with self._lock:
            turns, users = self._turns.get(client, (StepSemaphore(1), 0))
            self._turns[client] = (turns, users + 1)
            return turns

    def _leave(self, client: str) -> None:
        with self._lock:
            turns, users = self._turns.pop(client)
            if users > 1:
                self._turns[client] = (turns, users - 1)


def run_to_end(steps: PreparationSteps[T]) -> T:
    """Run the steps to the end without a pause and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
