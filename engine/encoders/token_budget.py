"""How much one forward pass computes: as much as others can wait for, measured."""

from __future__ import annotations

TARGET = 0.08
"""Seconds of a pass: a request that comes meanwhile waits so long, and a cancelled one is computed on."""
OVERHEAD = 0.0025
"""Seconds of a pass that do not depend on its size, roughly: padding that takes no longer saves one."""
MIN_TOKENS = 256
MAX_TOKENS = 65_536
_FIRST = 2_048


class TokenBudget:
    """Tokens of a pass, padding included, so that passes take about `TARGET` seconds.

    Attributes:
        tokens: Of the next pass.
    """

    def __init__(self) -> None:
        self.tokens = float(_FIRST)

    @property
    def free_padding(self) -> float:
        """Tokens of padding that cost less than a further pass."""
        return self.tokens * OVERHEAD / TARGET

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a pass; one that was much smaller than it might have been tells only if it was slow."""
        if tokens >= self.tokens / 2 or seconds > TARGET:
            change = min(max(TARGET / max(seconds, 1e-6), 0.5), 2.0)
            self.tokens = min(max(min(tokens, self.tokens) * change, MIN_TOKENS), MAX_TOKENS)
