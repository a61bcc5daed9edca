"""Requests that wait for memory, in the order in which they get it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import attrs

from greenroom.engine.fairness.fair_queue import FairQueue, WaitingPrompt
from greenroom.engine.fairness.held_rows import HeldRows
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

    @property
    def is_overdrawn(self) -> bool:
        """Whether its answer has become longer than what memory was reserved for."""
        return self.sequence.length > self.tokens

    def preempt(self, max_reserved_tokens: int) -> None:
        """Stop the sequence for now; it is computed anew from its prompt and its answer so far."""
        sequence = self.sequence
        sequence.preempt()
        rest = min(sequence.max_tokens - sequence.generated, max_reserved_tokens)
        self.tokens = len(sequence.prefill_tokens) + rest


class WaitingQueue:
    """Preempted sequences resume first; then clients and conversations take turns.

    Of those that are preempted, that whose client holds the fewest rows is first; of equal ones, that which
    began first. What has not yet begun passes it only if its client holds fewer. What is first stays first
    until there is memory for it, however much it needs: smaller requests do not overtake it for ever.
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

    def peek(self, held: HeldRows | None = None) -> QueueEntry | None:
        """Return the entry that is next.

        Args:
            held: By the clients; None: all that wait fit, so that the oldest is as good as any other.
        """
        if held is None:
            return next(iter(self), None)
        if not self._preempted:
            return self._next_new(self._new) if self._new else None
        rows = [held.of(entry.client) for entry in self._preempted]
        fewest = min(rows)
        fewer = [entry for entry in self._new if held.of(entry.client) < fewest]
        return self._next_new(fewer) if fewer else self._preempted[rows.index(fewest)]

    def _next_new(self, entries: list[QueueEntry]) -> QueueEntry:
        """Return the one of these whose client's turn it is."""
        waiting = [
            WaitingPrompt(entry.client, entry.conversation, len(entry.sequence.prefill_tokens))
            for entry in entries
        ]
        return entries[self._fair_queue.choose(waiting)]

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
