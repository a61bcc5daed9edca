"""Batching window for prompts that arrive together at an idle engine, whose prefill chunks may be longer."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.engine.text.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.text.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill.prefill_request import PrefillRequest
from greenroom.engine.text.sequences.sequence import Sequence


class BatchingWindow:
    """Tracks prompts that arrived with the decoding sequences, which tolerate longer chunks for them.

    The first sequences of a burst start to decode when their prompts are computed. If the other prompts were
    prefilled in the short chunks that protect unrelated streams, the few would decode alone for a long time.

    Args:
        policy: Defines prompts of similar length.
    """

    def __init__(self, policy: PrefillPolicy) -> None:
        self._policy = policy
        self._sequences: set[Sequence] = set()
        self._longest = 0
        self._closes_at = 0.0

    def open(self, prefilled: PrefilledSequences, requests: Iterable[PrefillRequest], now: float) -> None:
        """Open a window when the first sequences finish prefill on an idle engine.

        Args:
            requests: All requests whose prompts are not fully computed.
            now: Current time in seconds; similar prompts that arrive within the window join it.
        """
        self._longest = max(len(sequence.prefill_tokens) for sequence in prefilled.sequences)
        self._closes_at = now + self._policy.batching_window_ms / 1e3
        self._sequences.clear()
        for request in requests:
            self.add(request, now)

    def add(self, request: PrefillRequest, now: float) -> None:
        """Add a prompt if the window is open and the prompt is short enough."""
        if now < self._closes_at and self._policy.is_similar(request.remaining, self._longest):
            self._sequences.add(request.sequence)

    def covers(self, request: PrefillRequest) -> bool:
        """Return whether a request arrived in the same burst as the decoding sequences."""
        return request.sequence in self._sequences

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence whose prompt is computed or cancelled."""
        self._sequences.discard(sequence)
