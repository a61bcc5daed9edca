"""An account of the bytes that requests under way hold of one kind: bodies that came, answers that wait."""

from __future__ import annotations

from collections.abc import Hashable

from greenroom.schemas.problems import Problem, ProblemError

UNCOUNTED_BYTES = 65_536
"""Of each holder; small requests and answers go through whatever large ones are under way."""


class ByteAccount:
    """Counts bytes by holder, and refuses more than a limit.

    Args:
        most: Bytes that all holders may have together. A holder that is alone may have more.
        problem: The refusal.
    """

    def __init__(self, most: int, problem: Problem) -> None:
        self._most = most
        self._problem = problem
        self._held: dict[Hashable, int] = {}
        self._total = 0

    def hold(self, holder: Hashable, size: int) -> None:
        """Count that a holder has so many bytes, which may be more than before, and never counts as fewer.

        Raises:
            ProblemError: The others leave no room for what it has grown by. It keeps what it had.
        """
        before = self._held.get(holder, 0)
        growth = max(0, size - UNCOUNTED_BYTES - before)
        if growth and self._total > before and self._total + growth > self._most:
            raise ProblemError(self._problem)
        self._held[holder] = before + growth
        self._total += growth

    def release(self, holder: Hashable) -> None:
        """Count a holder no more."""
        self._total -= self._held.pop(holder, 0)
