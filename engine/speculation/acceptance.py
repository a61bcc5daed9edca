"""How often drafted tokens turn out to be right."""

from __future__ import annotations

_FADING = 0.93
_WEIGHT = 1.0
"""Drafts that a guess counts for."""


class Acceptance:
    """Learns, for each place in a draft, how likely its token is right if all before it were.

    Args:
        guess: Of that probability, before anything was drafted.
        longest: Most tokens of a draft.
    """

    def __init__(self, guess: float, longest: int) -> None:
        self._right = [guess, *[0.0] * (longest - 1)]
        self._tried = [1.0, *[0.0] * (longest - 1)]

    def observe(self, drafted: int, accepted: int) -> None:
        """Of so many drafted tokens, the first so many were right."""
        for place in range(min(accepted + 1, drafted)):
            self._right[place] = _FADING * self._right[place] + (place < accepted)
            self._tried[place] = _FADING * self._tried[place] + 1

    def expected(self, drafted: int) -> float:
        """Tokens of such a draft that will be right; a place that was never tried is as the one before it."""
        likely, total = 1.0, 0.0
        guess = self._right[0] / self._tried[0]
        for place in range(drafted):
            if place:
                guess = (self._right[place] + _WEIGHT * guess) / (self._tried[place] + _WEIGHT)
            likely *= guess
            total += likely
        return total
