"""Rows whose prompts are computed: they decode at once, or with the rest of their burst."""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as GenericSequence

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.scheduler.cost_model import StepCosts
from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.prefill_request import PrefillRequest
from greenroom.engine.sequences.sequence import Sequence


class BatchingWindow:
    """Rows that can decode, until somebody takes them.

    Args:
        policy: Says for how long they may be held.
        costs: What prompts still take.
    """

    def __init__(self, policy: PrefillPolicy, costs: StepCosts) -> None:
        self._policy = policy
        self._costs = costs
        self._joining: list[PrefilledSequences] = []
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._joining)

    def __iter__(self) -> Iterator[PrefilledSequences]:
        return iter(self._joining)

    def add(self, joining: PrefilledSequences) -> None:
        """Prompts were computed."""
        if not self._joining:
            self._since = time.perf_counter()
        self._joining.append(joining)

    def take(self) -> list[PrefilledSequences]:
        """All of them, which are not here any more."""
        taken, self._joining = self._joining, []
        return taken

    def cancel(self, row: Sequence) -> None:
        """Nobody wants a row any more, if it is here."""
        left = [joining.without(row) for joining in self._joining]
        self._joining = [joining for joining in left if joining is not None]

    def wait_for(self, following: PrefillRequest, prompts: GenericSequence[PrefillRequest]) -> bool:
        """Whether those who are here wait for the prompts like theirs, of which one comes next.

        Args:
            following: The next one of `prompts`.
            prompts: All that are not wholly computed, while nothing decodes.
        """
        longest = max(len(row.prefill_tokens) for joining in self._joining for row in joining.sequences)
        if not self._policy.is_similar(following.remaining, longest):
            return False
        waited = (time.perf_counter() - self._since) * 1e3
        rest = [(1, prompt.remaining, prompt.computed) for prompt in prompts]
        alike = [piece for piece in rest if self._policy.is_similar(piece[1], longest)]
        return self._policy.should_wait(waited, self._costs.prefill_ms(alike))
