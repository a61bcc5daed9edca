"""Whether to draft tokens, and how many: as many as give the most tokens per millisecond, or none."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.speculation.acceptance import Acceptance

DRAFT_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Tokens that a draft may have; few enough that the cost of each is soon known."""

_FIRST = 2
_GROWTH = 2
_FOLLOWING = 0.25
"""Weight of the latest measurement."""
_STRAGGLER = 4.0
_HOPE = 0.7
"""An untried draft is taken to cost this share of what it would in proportion: else nobody would try it."""
WORTHWHILE = 1.03
"""How many times faster than plain steps drafts must be."""
_PAUSE = 16
"""Plain steps between two drafts that are only made to see whether they have become worth while."""
_STALE = 256
"""Verified drafts after which a cost that was not measured since is forgotten."""
_REMEASURE = 128
"""Verified drafts in a row after which a few plain steps show what those cost by now."""


class SpeculationPolicy:
    """Compares the measured cost of verifying drafts with what plain steps would have cost.

    Losses are bounded: savings, in plain steps, are spent on drafts that turn out wrong and won back by those
    that turn out right. A small share of every plain step is put by, and when there is enough of it, drafting
    is tried again even where it has not been worth while.

    Args:
        guesses: For each kind of draft, how likely its tokens are right before anything is known.
        share: Of the time that speculation may lose.
        most: Savings at the beginning, and at most, in plain steps.
        enough: Savings for which drafting is tried again.
        token: First guess of what each drafted token costs, in plain steps.
    """

    def __init__(
        self,
        guesses: Sequence[float],
        share: float = 0.008,
        most: float = 4.0,
        enough: float = 1.5,
        token: float = 0.1,
    ) -> None:
        self._token = token
        self.step_ms: float | None = None
        self._acceptance = [Acceptance(guess, DRAFT_LENGTHS[-1]) for guess in guesses]
        self._share = share
        self._most = most
        self._enough = enough
        self._savings = most
        self._costs: dict[int, tuple[float, int]] = {}
        self._tried: set[int] = set()
        self._verified = 0
        self._since_plain = 0
        self._plain = 0
        self._late = 0.0
        self._leaving = 0.0
        self._gains: dict[tuple[int, int], float] = {}

    def choose(self, kind: int, most: int) -> int:
        """How many tokens to draft; 0 for a plain step.

        Args:
            kind: Of the draft at hand.
            most: Tokens that are of use.
        """
        if self.step_ms is None or self._savings <= 0 or self._since_plain >= _REMEASURE:
            return 0
        reach = _GROWTH * max(self._tried, default=_FIRST // _GROWTH)
        lengths = [length for length in DRAFT_LENGTHS if length <= min(most, reach)]
        if not lengths:
            return 0
        best = max(lengths, key=lambda length: self._gain(kind, length))
        if self._gain(kind, best) > WORTHWHILE:
            return best
        return best if self._savings >= self._enough and self._plain >= _PAUSE else 0

    def gain(self, kind: int) -> float:
        """How many times faster than plain steps the best drafts of that kind are, as far as is known."""
        reach = max(self._tried, default=_FIRST)
        return max(self._gain(kind, length) for length in DRAFT_LENGTHS if length <= reach)

    def spend(self, steps: float) -> bool:
        """Lose that many plain steps on trying what was not worth while again, if there are savings."""
        if self._savings < max(steps, self._enough):
            return False
        self._savings -= steps
        return True

    def plain(self, milliseconds: float) -> None:
        """A plain step, launched while the one before was under way."""
        if self.step_ms is None:
            self.step_ms = milliseconds
        shown = min(milliseconds, _STRAGGLER * self.step_ms)
        self.step_ms += _FOLLOWING * (shown - self.step_ms)
        self._since_plain = 0
        self._plain += 1
        self._earn(self._share)

    def late(self, milliseconds: float) -> None:
        """A plain step, launched only when the token before it was known, for the sake of a draft."""
        if self.step_ms is not None:
            excess = min(milliseconds / self.step_ms, _STRAGGLER) - 1
            self._late += excess
            self._earn(-excess)

    def verified(self, kind: int, drafted: int, accepted: int, milliseconds: float | None) -> None:
        """A draft was verified, which also gave the token that follows what was right of it.

        Args:
            milliseconds: From the token before until all these were known; None if that was not seen.
        """
        self._gains.clear()
        self._acceptance[kind].observe(drafted, accepted)
        self._verified += 1
        self._since_plain += 1
        self._plain = 0
        self._leaving += _FOLLOWING * (max(self._late, 0.0) - self._leaving)
        self._late = 0.0
        if milliseconds is None or self.step_ms is None:
            return
        cost = min(milliseconds / self.step_ms, _STRAGGLER + drafted)
        self._earn(1 + accepted - cost)
        known = self._known(drafted)
        if known is not None:
            cost = known + _FOLLOWING * (min(cost, _STRAGGLER * known) - known)
        elif drafted not in self._tried:  # the first pass of its length also builds what later ones use
            self._tried.add(drafted)
            return
        self._costs[drafted] = cost, self._verified

    def _earn(self, steps: float) -> None:
        self._savings = min(self._savings + steps, self._most)

    def _gain(self, kind: int, length: int) -> float:
        known = self._gains.get((kind, length))
        if known is None:
            tokens = 1 + self._acceptance[kind].expected(length)
            known = self._gains[kind, length] = tokens / (self._cost(length) + self._leaving)
        return known

    def _cost(self, length: int) -> float:
        """Of verifying so many drafted tokens, in plain steps."""
        known = self._known(length)
        if known is not None:
            return known
        costs = {each: cost for each in DRAFT_LENGTHS if (cost := self._known(each)) is not None}
        nearest = min(costs, key=lambda each: abs(each - length), default=None)
        if nearest is None:
            return 1 + self._token * length
        return 1 + _HOPE * max(costs[nearest] - 1, 0.0) * length / nearest

    def _known(self, length: int) -> float | None:
        cost, when = self._costs.get(length, (None, 0))
        return None if self._verified - when > _STALE else cost
