"""How often one stretch of text may be read anew."""

from __future__ import annotations

_MOST = 64


class Retries:
    """Counts attempts that end no further than one before them. Positions are those in the whole text.

    Markers of which none begins a call may stand in each other's blocks, so that each block goes through the
    same text again; a model in a loop writes thousands of them.
    """

    def __init__(self) -> None:
        self._furthest = -1
        self._count = 0

    def count(self, end: int) -> int | None:
        """Note a failed attempt; return how far all is text if there were too many, else None.

        Args:
            end: How far the attempt went.
        """
        if end > self._furthest:
            self._furthest, self._count = end, 0
            return None
        self._count += 1
        return self._furthest if self._count > _MOST else None
