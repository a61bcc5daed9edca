"""Whether the masks of one constraint are too slow for other sequences to wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.engine.grammar.matching.grammar_threads import Job, grammar_threads

ALLOWANCE_MS = 10.0
"""Milliseconds of a mask that a step can bear: the forward pass hides most, and another pass is more."""

_PATIENCE_MS = 40.0
"""Milliseconds beyond the allowance, of one mask or of many, after which a constraint is slow."""

_SUSPICIOUS_MS = 20.0
"""Milliseconds of masks that are computed together, after which each is timed by itself for a while."""

_PROBATION_MS = 1_000.0
"""Allowance that is to be saved by fast masks until a constraint is not slow any more; doubled each time."""

_MAX_RELAPSES = 8
"""Doublings of the allowance after which it grows no more."""


class Pace:
    """Counts what a constraint's masks took beyond their allowance: a first mask may be slow, but not each.

    Of the answers under one constraint, which share batches, one has a job in flight at a time, so that
    the many choices of a request do not keep the threads from others.
    """

    def __init__(self) -> None:
        self.is_slow = False
        self._debt_ms = 0.0
        self._relapses = 0
        self._job: Job | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether the next mask should be timed by itself."""
        return self._debt_ms > 0

    def record(self, milliseconds: float) -> None:
        """Record what a mask took."""
        self._debt_ms = max(0.0, self._debt_ms + milliseconds - ALLOWANCE_MS)
        if not self.is_slow and self._debt_ms > _PATIENCE_MS:
            self.is_slow = True
            self._debt_ms += _PROBATION_MS * 2**self._relapses
            self._relapses = min(self._relapses + 1, _MAX_RELAPSES)
        elif self._debt_ms == 0:
            self.is_slow = False

    def suspect(self, milliseconds: float) -> None:
        """Record what a mask took with those of others: if that is long, it is to be timed by itself."""
        if milliseconds > _SUSPICIOUS_MS:
            self._debt_ms = max(self._debt_ms, _PATIENCE_MS / 2)

    def start(self, call: Callable[[], Any]) -> Job | None:
        """Have something computed on another thread; None while something else of the constraint is.

        A job that hangs is returned in place of all that wait for it.
        """
        running = self._job
        if running is not None and not running.is_done:
            return running if running.is_stuck else None
        self._job = grammar_threads().submit(call)
        return self._job
