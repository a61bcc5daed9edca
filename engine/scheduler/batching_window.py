"""Prompts that arrive together at an idle engine: their chunks may be longer than beside other streams."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.prefill_request import PrefillRequest
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

    def open(self, prefilled: PrefilledSequences, requests: Iterable[PrefillRequest]) -> None:
        """Let the first sequences that are done while nothing decodes wait for those of these like them.

        Args:
            requests: All that are not wholly computed; what arrives later is not waited for.
        """
        longest = max(len(sequence.prefill_tokens) for sequence in prefilled.sequences)
        self._sequences = {
            request.sequence for request in requests if self._policy.is_similar(request.remaining, longest)
        }

    def covers(self, request: PrefillRequest) -> bool:
        """Return whether those that decode came with this request."""
        return request.sequence in self._sequences

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence whose prompt is computed or cancelled."""
        self._sequences.discard(sequence)
