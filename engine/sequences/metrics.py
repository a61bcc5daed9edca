"""What a sequence has cost, and when."""

from __future__ import annotations

import time

import attrs

from greenroom.schemas.events import Timing


@attrs.define(eq=False)
class SequenceMetrics:
    """Figures for the usage and the timing of a sequence's last event; times are `perf_counter`'s.

    Args:
        cached_tokens: Of the prompt, which the prefix cache had, so that they were not computed.
        written_tokens: Of the prompt, which the prefix cache was given.
        drafted_tokens: Of the answer, which were drafted and verified.
        accepted_tokens: Those of them that became part of the answer.
        started_at: When computing its prompt began.
        first_token_at: When its first token was read.
    """

    cached_tokens: int = 0
    written_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    submitted_at: float = attrs.field(factory=time.perf_counter)
    started_at: float | None = None
    first_token_at: float | None = None

    def timing(self) -> Timing:
        """Return the seconds spent so far in the queue, in prefill and in decoding."""
        now = time.perf_counter()
        started = self.started_at or now
        first = self.first_token_at or now
        return Timing(queued=started - self.submitted_at, prefill=first - started, decode=now - first)
