"""Token counts and timing of a sequence."""

from __future__ import annotations

import time

import attrs

from greenroom.schemas.events.events import Timing


@attrs.define(eq=False)
class SequenceMetrics:
    """Figures for the usage and timing in a sequence's last event; times are from `perf_counter`.

    Args:
        cached_tokens: Prompt tokens restored from the prefix cache.
        written_tokens: Prompt tokens inserted into the prefix cache.
        drafted_tokens: Draft tokens that were verified.
        accepted_tokens: Draft tokens that were accepted.
        submitted_at: Time of submission.
        started_at: Time at which prefill began.
        first_token_at: Time at which the first token was read.
        last_token_at: End of the step that read the last token so far.
    """

    cached_tokens: int = 0
    written_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    submitted_at: float = attrs.field(factory=time.perf_counter)
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    def timing(self) -> Timing:
        """Return the seconds spent so far in the queue, in prefill and in decoding."""
        now = time.perf_counter()
        started = self.started_at or now
        first = self.first_token_at or now
        return Timing(queued=started - self.submitted_at, prefill=first - started, decode=now - first)
