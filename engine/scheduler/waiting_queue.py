"""Requests that wait for memory, in the order in which they get it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import attrs

from greenroom.engine.fairness.fair_queue import FairQueue, WaitingPrompt
from greenroom.engine.sequences.sequence import Sequence


@attrs.define(eq=False)
class QueueEntry:
    """A sequence's place, while it waits and while it is computed.

    Args:
        tokens: Those for which memory is reserved while it is computed, in each of its choices' caches.
        choices: How many sequences start with it.
    """

    sequence: Sequence
    client: str = ""
    conversation: str = ""
    tokens: int = 0
    choices: int = 1

    def preempt(self, max_reserved_tokens: int) -> None:
        """Stop the sequence for now; it is computed anew from its prompt and its answer so far."""
        sequence = self.sequence
        sequence.preempt()
        rest = min(sequence.max_tokens - sequence.generated, max_reserved_tokens)
        self.tokens = len(sequence.prefill_tokens) + rest


class WaitingQueue:
    """Preempted sequences resume first, the oldest before all; then clients and conversations take turns.

    Whatever is first stays first until there is memory for it, however much it needs: smaller requests do not
    overtake it for ever.
    """

    def __init__(self) -> None:
        self._preempted: list[QueueEntry] = []
        self._new: list[QueueEntry] = []
        self._fair_queue = FairQueue()

    def __len__(self) -> int:
        return len(self._preempted) + len(self._new)

    def add(self, entry: QueueEntry) -> None:
        """Add a request, or a sequence that was preempted."""
        if entry.sequence.preempted:
            self._preempted.append(entry)
            self._preempted.sort(key=lambda preempted: preempted.sequence.serial)
            return
        if not self._new:
            self._fair_queue.forget()
        self._new.append(entry)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._preempted, self._new)

    def peek(self, *, fair: bool = True) -> QueueEntry | None:
        """Return the entry that is next.

        Args:
            fair: Have clients take turns; else the oldest is next, which is as good if all fit.
        """
        if self._preempted:
            return self._preempted[0]
        if not self._new:
            return None
        if not fair:
            return self._new[0]
        waiting = [
            WaitingPrompt(entry.client, entry.conversation, len(entry.sequence.prefill_tokens))
            for entry in self._new
        ]
        return self._new[self._fair_queue.choose(waiting)]

    def pop(self, entry: QueueEntry) -> None:
        """Remove an entry that is admitted."""
        if entry in self._preempted:
            self._preempted.remove(entry)
            return
        self._new.remove(entry)
        self._fair_queue.charge([entry.client], entry.tokens * entry.choices)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence, if it is here."""
        self._preempted = [entry for entry in self._preempted if entry.sequence is not sequence]
        self._new = [entry for entry in self._new if entry.sequence is not sequence]
