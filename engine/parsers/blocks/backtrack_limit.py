"""Limit on repeated attempts to parse the same text."""

from __future__ import annotations

_MOST = 64


class BacktrackLimit:
    """Counts failed attempts that end no later than an earlier one.

    Positions count from the start of the whole output. Markers without a call may lie in one another's
    blocks, so each block parses the same text again, and a looping model writes thousands of them.
    """

    def __init__(self) -> None:
        self._furthest = -1
        self._count = 0

    def count(self, end: int) -> int | None:
        """Record a failed attempt; after too many, return the position up to which all is text, else None.

        Args:
            end: Position up to which the attempt read.
        """
        if end > self._furthest:
            self._furthest, self._count = end, 0
            return None
        self._count += 1
        return self._furthest if self._count > _MOST else None
