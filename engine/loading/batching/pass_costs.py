"""Prediction of the time of a forward pass from earlier passes."""

from __future__ import annotations


class PassCosts:
    """Learns the seconds of passes by their token count and extrapolates to larger ones.

    Args:
        first: Seconds of a pass of one token.
    """

    def __init__(self, first: float) -> None:
        self._seconds = {1: first}

    def observe(self, tokens: int, seconds: float) -> None:
        self._seconds[tokens] = seconds

    def predict(self, tokens: int) -> float:
        """Return the predicted seconds, on the line through the two largest passes that are not larger."""
        counts = sorted(count for count in self._seconds if count <= tokens)
        last = counts[-1]
        if len(counts) == 1:
            return self._seconds[last] * tokens / last
        before = counts[-2]
        per_token = (self._seconds[last] - self._seconds[before]) / (last - before)
        return self._seconds[last] + max(0.0, per_token) * (tokens - last)

    def fitting(self, tokens: int, seconds: float) -> int:
        """Return the number of these tokens, at least one, that a pass can compute within a time."""
        fits = (count for count in range(tokens, 1, -1) if self.predict(count) <= seconds)
        return next(fits, 1)
