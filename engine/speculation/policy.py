"""Whether to draft tokens, and how many: only while that gives more tokens per millisecond than plain steps.

The length of a draft follows the heuristic of Hugging Face's assisted generation: two more after a
draft that was right as a whole, one less after any other.
"""

from __future__ import annotations

MAX_DRAFT = 16
"""Tokens that a draft may have."""

_FIRST_DRAFT = 2
_SMOOTHING = 0.25
"""Weight of the latest measurement."""
_MAX_OUTLIER = 4.0
"""Times the average that a single measurement may count for."""
_MIN_WEIGHT = 0.1
"""Of the latest draft in the averages by which drafts are judged."""
_TRIAL = 4
"""Drafts before they are judged; the first pass of a length also builds what later ones use."""
_WORTHWHILE = 1.03
"""How many times faster than plain steps drafts must be."""
_MIN_PAUSE, _MAX_PAUSE = 64, 512
"""Plain steps between two trials; twice as many after each trial that did not pay."""
_REMEASURE = 128
"""Drafts in a row after which a few plain steps show what those cost by now."""
_REMEASURED = 4


class SpeculationPolicy:
    """Tries drafts, goes on while they pay, and pauses where they do not, longer each time.

    So a stream for which drafts never pay loses a few slow steps of every 500.

    Attributes:
        step_ms: What a plain step takes; None before one was seen.
    """

    def __init__(self) -> None:
        self.step_ms: float | None = None
        self._length = _FIRST_DRAFT
        self._pause, self._next_pause = 0, _MIN_PAUSE
        self._drafts = self._since_plain = 0
        self._overhead_ms = 0.0
        self._tokens = self._ms = 0.0

    @property
    def paused(self) -> bool:
        """Whether no draft is to be made now."""
        return self.step_ms is None or self._pause > 0

    def draft_length(self, most: int) -> int:
        """Return how many tokens to draft; 0 for a plain step.

        Args:
            most: Tokens that are of use.
        """
        return 0 if self.paused else max(0, min(self._length, most))

    def record_step(self, milliseconds: float) -> None:
        """Record a plain step, launched while the one before was under way."""
        if self.step_ms is None:
            self.step_ms = milliseconds
        shown = min(milliseconds, _MAX_OUTLIER * self.step_ms)
        self.step_ms += _SMOOTHING * (shown - self.step_ms)
        self._since_plain = 0
        self._pause = max(0, self._pause - 1)

    def record_unpipelined(self, milliseconds: float) -> None:
        """Record a plain step, launched only when the token before it was known, for the sake of a draft."""
        if self.step_ms is None:
            return
        self._overhead_ms += min(milliseconds, _MAX_OUTLIER * self.step_ms) - self.step_ms
        if self._overhead_ms > _MAX_OUTLIER * self.step_ms:  # drafts are expected where there are none
            self._stop()

    def record_draft(self, drafted: int, accepted: int, milliseconds: float | None) -> None:
        """Record a draft that was verified, which also gave the token that follows what was right of it.

        Args:
            milliseconds: From the token before until all these were known; None if that was not seen.
        """
        longer = drafted + 2 if accepted == drafted else drafted - 1
        self._length = max(1, min(MAX_DRAFT, longer))
        self._since_plain += 1
        if milliseconds is None or self.step_ms is None:
            return
        limit = (_MAX_OUTLIER + drafted) * self.step_ms
        milliseconds = min(milliseconds, limit) + max(0.0, self._overhead_ms)
        self._overhead_ms = 0.0
        weight = max(1 / (self._drafts + 1), _MIN_WEIGHT)
        self._tokens += weight * (1 + accepted - self._tokens)
        self._ms += weight * (milliseconds - self._ms)
        self._drafts += 1
        if self._drafts < _TRIAL:
            return
        if self._tokens * self.step_ms < _WORTHWHILE * self._ms:
            self._stop()
        elif self._since_plain >= _REMEASURE:
            self._pause = _REMEASURED
        elif self._drafts > 4 * _TRIAL:
            self._next_pause = _MIN_PAUSE

    def _stop(self) -> None:
        """Pause, and begin again with short drafts."""
        self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _MAX_PAUSE)
        self._length, self._drafts, self._overhead_ms = _FIRST_DRAFT, 0, 0.0
