"""Memory budget of one kind of data that concurrent requests hold: bodies, or unsent responses."""

from __future__ import annotations

from collections.abc import Hashable

from greenroom.schemas.problems import Problem, ProblemError

UNCOUNTED_BYTES = 65_536
"""Free allowance of each holder, in bytes, so that large requests never block small ones."""


class ByteAccount:
    """Counts bytes by holder, and refuses to exceed a limit.

    Args:
        most: Limit on the bytes of all holders together. A single holder may exceed it if there is no other.
        problem: Problem to raise at the limit.
    """

    def __init__(self, most: int, problem: Problem) -> None:
        self._most = most
        self._problem = problem
        self._held: dict[Hashable, int] = {}
        self._total = 0

    def hold(self, holder: Hashable, size: int) -> None:
        """Charge a holder for a total of `size` bytes; a charge only grows until it is released.

        Raises:
            ProblemError: The growth exceeds the limit; the charge stays as it was.
        """
        before = self._held.get(holder, 0)
        growth = max(0, size - UNCOUNTED_BYTES - before)
        if growth and self._total > before and self._total + growth > self._most:
            raise ProblemError(self._problem)
        self._held[holder] = before + growth
        self._total += growth

    def release(self, holder: Hashable) -> None:
        self._total -= self._held.pop(holder, 0)
