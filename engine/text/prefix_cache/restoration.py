"""Restoration of a cached prefix into a sequence's cache, in steps of bounded size."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

import attrs


@attrs.frozen
class Restored:
    """A restored prefix.

    Args:
        tokens: Length in tokens.
        from_disk: Tokens of it that were read from files.
    """

    tokens: int = 0
    from_disk: int = 0


RestorationSteps = Generator["int | Future[Any]", None, Restored]
"""Generator that yields the bytes of each copy before making it, or a pending read."""


class Restoration:
    """Copies made one after another on the model's thread.

    Args:
        steps: Generator that makes the copies; closing it releases everything.

    Attributes:
        is_done: Whether the cache is filled.
        restored: What is in the cache once it is filled.
    """

    def __init__(self, steps: RestorationSteps) -> None:
        self.is_done = False
        self.restored = Restored()
        self._steps = steps
        self._next: int | Future[Any] = 0

    @property
    def length(self) -> int:
        """Number of tokens in the cache once it is filled."""
        return self.restored.tokens

    def is_waiting(self, seconds: float = 0.0) -> bool:
        """Return whether it waits for the disk.

        Args:
            seconds: Maximum seconds to wait for the read before returning.
        """
        return isinstance(self._next, Future) and not wait_for([self._next], seconds).done

    def advance(self, nbytes: float, *, force: bool = False) -> int:
        """Make the copies that fit into `nbytes`; return the bytes copied.

        Args:
            force: Whether to make the first copy even if it is larger.
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
                self.restored, self.is_done = end.value, True
        return copied

    def close(self) -> None:
        """Release the source of the copies, finished or not."""
        self._steps.close()
