"""What a pass through a model will take, by those before it."""

from __future__ import annotations


class PassCosts:
    """Learns the seconds of passes by their tokens, and foretells those of larger ones.

    Args:
        first: Seconds of a pass of one token.
    """

    def __init__(self, first: float) -> None:
        self._seconds = {1: first}

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn what a pass took."""
        self._seconds[tokens] = seconds

    def predict(self, tokens: int) -> float:
        """Return seconds: as the two largest passes that are no larger have it, on a line through both."""
        counts = sorted(count for count in self._seconds if count <= tokens)
        last = counts[-1]
        if len(counts) == 1:
            return self._seconds[last] * tokens / last
        before = counts[-2]
        per_token = (self._seconds[last] - self._seconds[before]) / (last - before)
        return self._seconds[last] + max(0.0, per_token) * (tokens - last)

    def fitting(self, tokens: int, seconds: float) -> int:
        """Return how many of these tokens a pass of so many seconds computes; at least one."""
        fits = (count for count in range(tokens, 1, -1) if self.predict(count) <= seconds)
        return next(fits, 1)
