"""A cached prefix on its way into a sequence's cache, as many bytes at a time as a step has time for."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

RestorationSteps = Generator["int | Future[Any]", None, int]
"""Yields the bytes of each copy before making it, or what it waits for; returns the tokens restored."""


class Restoration:
    """Copies that are made one after another, on the model's thread.

    Args:
        steps: Makes them; closed, it lets go of everything.

    Attributes:
        is_done: Whether the cache is filled.
        length: Tokens that the cache holds once it is.
    """

    def __init__(self, steps: RestorationSteps) -> None:
        self.is_done = False
        self.length = 0
        self._steps = steps
        self._next: int | Future[Any] = 0

    def is_waiting(self, seconds: float = 0.0) -> bool:
        """Return whether it waits for the disk.

        Args:
            seconds: To wait with it at most.
        """
        return isinstance(self._next, Future) and not wait_for([self._next], seconds).done

    def advance(self, nbytes: float, *, force: bool = False) -> int:
        """Make the copies that fit into so many bytes; return the bytes copied.

        Args:
            force: Make one that is larger, if it is the first.
        """
        copied = 0
        while not self.is_done and not self.is_waiting():
            following = 0 if isinstance(self._next, Future) else self._next
            if following > nbytes - copied and not (force and not copied):
                break
            copied += following
            try:
                self._next = next(self._steps)
            except StopIteration as end:
                self.length, self.is_done = end.value, True
        return copied

    def close(self) -> None:
        """Let go of what it copies from, done or not."""
        self._steps.close()
