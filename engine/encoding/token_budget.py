"""The token budget of a forward pass, measured so that other requests do not wait long."""

from __future__ import annotations

from collections.abc import Sequence

TARGET = 0.08
"""Target duration of a pass in seconds: a new request may wait that long, and a cancelled one runs on."""
LONGEST = 0.2
"""Limit, in seconds, of a pass of several rows whose duration is mostly fixed."""
OVERHEAD = 0.0025
"""Rough fixed duration of a pass in seconds: padding that takes less is cheaper than a further pass."""
MAX_TOKENS = 65_536
_GROWTH = 2.0
"""Largest growth factor from pass to pass: the first of a size may be slower than predicted."""


class TokenBudget:
    """The number of tokens per pass, including padding, at which passes take about `TARGET` seconds.

    A pass has a fixed duration, to read the weights, and a duration per token. If the fixed part is long,
    passes may take twice as long as it, but never more than `LONGEST`. One row is always computed.

    Args:
        tokens: Budget of the first pass in tokens.
        fixed: Fixed duration of a pass in seconds, as far as known.

    Attributes:
        tokens: Budget of the next pass in tokens.
    """

    def __init__(self, tokens: float, fixed: float = 0.0) -> None:
        self._fixed = fixed
        self.tokens = min(max(tokens, 1.0), MAX_TOKENS)

    @classmethod
    def measured(cls, passes: Sequence[tuple[int, float]]) -> TokenBudget:
        """Return a budget from timed passes, by the line through the two largest.

        Args:
            passes: Tokens and seconds of at least two passes, the largest last.
        """
        (few, short), (many, long) = passes[-2:]
        per_token = max(0.0, (long - short) / (many - few))
        fixed = max(0.0, min(short, long) - per_token * few)
        most = _GROWTH * many
        room = max(0.0, _goal(fixed) - fixed)
        return cls(most if per_token * most <= room else room / per_token, fixed)

    @property
    def free_padding(self) -> float:
        """Number of padding tokens that cost less time than another forward pass would."""
        return self.tokens * OVERHEAD / TARGET

    def observe(self, tokens: int, seconds: float) -> None:
        """Adjust the budget by a pass; a pass under half the budget counts only if it was slow."""
        self._fixed = min(self._fixed, seconds)
        goal = _goal(self._fixed)
        if tokens >= self.tokens / 2 or seconds > goal:
            change = max(0.0, goal - self._fixed) / max(seconds - self._fixed, 1e-6)
            self.tokens = min(max(tokens * min(change, _GROWTH), 1.0), MAX_TOKENS)


def _goal(fixed: float) -> float:
    return min(max(TARGET, 2 * fixed), LONGEST)
