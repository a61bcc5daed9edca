"""Prompts that arrive together at an idle engine: their chunks may be longer than beside other streams."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.prefill.prefill_request import PrefillRequest
from greenroom.engine.sequences.sequence import Sequence


class BatchingWindow:
    """The prompts for whose chunks the sequences that came with them wait between two tokens.

    The first sequences of a burst decode as soon as their prompts are done. Were the chunks of the others as
    short as beside streams of somebody else, the few would decode for long without the many.

    Args:
        policy: Says which prompts are similar enough to be waited for.
    """

    def __init__(self, policy: PrefillPolicy) -> None:
        self._policy = policy
        self._sequences: set[Sequence] = set()
        self._longest = 0
        self._closes_at = 0.0

    def open(self, prefilled: PrefilledSequences, requests: Iterable[PrefillRequest], now: float) -> None:
        """Let the first sequences that are done while nothing decodes wait for those of these like them.

        Args:
            requests: All that are not wholly computed.
            now: Seconds; who arrives until a window later is one of them.
        """
        self._longest = max(len(sequence.prefill_tokens) for sequence in prefilled.sequences)
        self._closes_at = now + self._policy.batching_window_ms / 1e3
        self._sequences.clear()
        for request in requests:
            self.add(request, now)

    def add(self, request: PrefillRequest, now: float) -> None:
        """Count a prompt among those that came together, if it is similar and not too late."""
        if now < self._closes_at and self._policy.is_similar(request.remaining, self._longest):
            self._sequences.add(request.sequence)

    def covers(self, request: PrefillRequest) -> bool:
        """Return whether those that decode came with this request."""
        return request.sequence in self._sequences

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence whose prompt is computed or cancelled."""
        self._sequences.discard(sequence)
