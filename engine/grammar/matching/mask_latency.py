"""Detection of constraints whose masks are too slow for other sequences to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.engine.grammar.matching.grammar_threads import Job, grammar_threads

ALLOWANCE_MS = 10.0
"""Time of a mask that a step tolerates, in milliseconds: the forward pass hides most of it."""

_PATIENCE_MS = 40.0
"""Time beyond the allowance, over one or several masks, that makes a constraint slow, in milliseconds."""

_SUSPICIOUS_MS = 20.0
"""Time of masks computed together above which each is timed alone for a while, in milliseconds."""

_PROBATION_MS = 1_000.0
"""Allowance that fast masks must save before a constraint is no longer slow, in ms; doubles each time."""

_MAX_RELAPSES = 8
"""Limit on the doublings of `_PROBATION_MS`."""


class MaskLatency:
    """Tracks the time of a constraint's masks beyond their allowance: single masks may be slow.

    Answers under one constraint share batches. Only one of them has a job in flight at a time, so that a
    request with many choices does not occupy all threads.
    """

    def __init__(self) -> None:
        self.is_slow = False
        self._debt_ms = 0.0
        self._relapses = 0
        self._job: Job | None = None

    @property
    def is_suspect(self) -> bool:
        """True if the next mask should be timed alone."""
        return self._debt_ms > 0

    def record(self, milliseconds: float) -> None:
        """Record the time of one mask, in milliseconds."""
        self._debt_ms = max(0.0, self._debt_ms + milliseconds - ALLOWANCE_MS)
        if not self.is_slow and self._debt_ms > _PATIENCE_MS:
            self.is_slow = True
            self._debt_ms += _PROBATION_MS * 2**self._relapses
            self._relapses = min(self._relapses + 1, _MAX_RELAPSES)
        elif self._debt_ms == 0:
            self.is_slow = False

    def suspect(self, milliseconds: float) -> None:
        """Record the time of a mask computed with others; if long, the next one is timed alone."""
        if milliseconds > _SUSPICIOUS_MS:
            self._debt_ms = max(self._debt_ms, _PATIENCE_MS / 2)

    def start(self, call: Callable[[], Any]) -> Job | None:
        """Start a computation on another thread; return None while the constraint has another one running.

        Returns the running job if it hangs.
        """
        running = self._job
        if running is not None and not running.is_done:
            return running if running.is_stuck else None
        self._job = grammar_threads().submit(call)
        return self._job
