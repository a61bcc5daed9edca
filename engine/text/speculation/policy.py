"""Speculation policy: drafts only while that yields more tokens per millisecond than plain steps.

The draft length follows the heuristic of Hugging Face's assisted generation: two more after a fully accepted
draft, one less after any other.
"""

from __future__ import annotations

MAX_DRAFT = 16
"""Most tokens in a draft."""

_FIRST_DRAFT = 2
_SMOOTHING = 0.25
"""Weight of the latest measurement in the moving average."""
_MAX_OUTLIER = 4.0
"""Multiple of the average at which single measurements are clipped."""
_MIN_WEIGHT = 0.1
"""Minimum weight of the latest draft in the averages by which drafts are judged."""
_TRIAL = 4
"""Number of drafts in a trial; the first pass of each length also compiles kernels for later ones."""
_WORTHWHILE = 1.03
"""Minimum speedup over plain steps that drafts must reach."""
_MIN_PAUSE, _MAX_PAUSE = 64, 512
"""Plain steps between two trials; doubled after each failed trial."""
_REMEASURE = 128
"""Successive drafts after which a few plain steps are timed again."""
_REMEASURED = 4


class SpeculationPolicy:
    """Tries drafts, continues while they pay off, and pauses for longer after each failed trial.

    A stream for which drafts never pay off loses a few slow steps of every 500.

    Attributes:
        step_ms: Milliseconds of a plain step; None before the first measurement.
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
        """True if no draft should be made now."""
        return self.step_ms is None or self._pause > 0

    def draft_length(self, most: int) -> int:
        """Return the number of tokens to draft; 0 for a plain step.

        Args:
            most: Number of tokens that the sequence can still use.
        """
        return 0 if self.paused else max(0, min(self._length, most))

    def record_step(self, milliseconds: float) -> None:
        """Record a pipelined plain step, launched while the previous one was in flight."""
        if self.step_ms is None:
            self.step_ms = milliseconds
        shown = min(milliseconds, _MAX_OUTLIER * self.step_ms)
        self.step_ms += _SMOOTHING * (shown - self.step_ms)
        self._since_plain = 0
        self._pause = max(0, self._pause - 1)

    def record_unpipelined(self, milliseconds: float) -> None:
        """Record a plain step that waited for the previous token, in the hope of a draft."""
        if self.step_ms is None:
            return
        self._overhead_ms += min(milliseconds, _MAX_OUTLIER * self.step_ms) - self.step_ms
        if self._overhead_ms > _MAX_OUTLIER * self.step_ms:  # too many waits without a draft
            self._stop()

    def record_draft(self, drafted: int, accepted: int, milliseconds: float | None) -> None:
        """Record a verified draft, which also yields the token after the accepted ones.

        Args:
            milliseconds: Time from the previous token to the arrival of these; None if not measured.
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
        """Pause, and start again with short drafts."""
        self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _MAX_PAUSE)
        self._length, self._drafts, self._overhead_ms = _FIRST_DRAFT, 0, 0.0
