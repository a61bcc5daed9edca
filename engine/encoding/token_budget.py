"""How much one forward pass computes: as much as others can wait for, measured."""

from __future__ import annotations

from collections.abc import Sequence

TARGET = 0.08
"""Seconds of a pass: a request that comes meanwhile waits so long, and a cancelled one is computed on."""
LONGEST = 0.2
"""Seconds of a pass of several rows at most, where most of them do not depend on its size."""
OVERHEAD = 0.0025
"""Seconds of a pass that do not depend on its size, roughly: padding that takes no longer saves one."""
MAX_TOKENS = 65_536
_GROWTH = 2.0
"""By which a pass is larger than the one before at most: the first of a size may be slower than foretold."""


class TokenBudget:
    """Tokens of a pass, padding included, so that passes take about `TARGET` seconds.

    A pass takes some seconds whatever its size, to read the weights, and some for each token. Where the
    former are many, passes may take twice as long as these, but never more than `LONGEST`. One row is always
    computed.

    Args:
        tokens: Of the first pass.
        fixed: Seconds of a pass that do not depend on its size, as far as that is known.

    Attributes:
        tokens: Of the next pass.
    """

    def __init__(self, tokens: float, fixed: float = 0.0) -> None:
        self._fixed = fixed
        self.tokens = min(max(tokens, 1.0), MAX_TOKENS)

    @classmethod
    def measured(cls, passes: Sequence[tuple[int, float]]) -> TokenBudget:
        """Return a budget by what passes took, on a line through the two largest.

        Args:
            passes: Tokens and seconds of at least two, the largest last.
        """
        (few, short), (many, long) = passes[-2:]
        per_token = max(0.0, (long - short) / (many - few))
        fixed = max(0.0, min(short, long) - per_token * few)
        most = _GROWTH * many
        room = max(0.0, _goal(fixed) - fixed)
        return cls(most if per_token * most <= room else room / per_token, fixed)

    @property
    def free_padding(self) -> float:
        """Tokens of padding that cost less than a further pass."""
        return self.tokens * OVERHEAD / TARGET

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a pass; one that was much smaller than it might have been tells only if it was slow."""
        self._fixed = min(self._fixed, seconds)
        goal = _goal(self._fixed)
        if tokens >= self.tokens / 2 or seconds > goal:
            change = max(0.0, goal - self._fixed) / max(seconds - self._fixed, 1e-6)
            self.tokens = min(max(tokens * min(change, _GROWTH), 1.0), MAX_TOKENS)


def _goal(fixed: float) -> float:
    return min(max(TARGET, 2 * fixed), LONGEST)
