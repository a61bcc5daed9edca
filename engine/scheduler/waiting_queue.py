"""Requests that wait for memory, in the order in which they get it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import attrs

from greenroom.engine.scheduler.fair_queue import FairQueue, WaitingPrompt
from greenroom.engine.sequences.sequence import Sequence


@attrs.define(eq=False)
class QueueEntry:
    """A row's place, while it waits and while it computes.

    Args:
        embeddings: Of its prompt, if it does not consist of tokens alone.
        tokens: Those for which room is reserved while it computes, in each of its choices' caches.
        choices: How many rows begin with it.
    """

    sequence: Sequence
    embeddings: Any = None
    client: str = ""
    conversation: str = ""
    tokens: int = 0
    choices: int = 1


class WaitingQueue:
    """Who was stopped goes on first, the oldest before all; then clients and conversations take turns.

    Whoever is first keeps that place until there is room, however large the room has to be: smaller
    requests do not slip past for ever.
    """

    def __init__(self) -> None:
        self._preempted: list[QueueEntry] = []
        self._new: list[QueueEntry] = []
        self._fair_queue = FairQueue()

    def __len__(self) -> int:
        return len(self._preempted) + len(self._new)

    def add(self, entry: QueueEntry) -> None:
        """Let a request wait."""
        if entry.sequence.preempted:
            self._preempted.append(entry)
            self._preempted.sort(key=lambda stopped: stopped.sequence.serial)
        else:
            self._new.append(entry)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._preempted, self._new)

    def peek(self, *, fair: bool = True) -> QueueEntry | None:
        """Whose turn it is.

        Args:
            fairly: Have clients take turns; else who came first is first, which matters not if there is room
                for all.
        """
        if self._preempted:
            return self._preempted[0]
        if not self._new:
            return None
        if not fair:
            return self._new[0]
        waiting = [
            WaitingPrompt(seat.client, seat.conversation, len(seat.sequence.prefill_tokens))
            for seat in self._new
        ]
        return self._new[self._fair_queue.choose(waiting)]

    def pop(self, entry: QueueEntry) -> None:
        """The first one gets its room."""
        if entry in self._preempted:
            self._preempted.remove(entry)
            return
        self._new.remove(entry)
        self._fair_queue.charge([entry.client], entry.tokens * entry.choices)

    def remove(self, sequence: Sequence) -> None:
        """Forget a row, if it is here."""
        self._preempted = [seat for seat in self._preempted if seat.sequence is not sequence]
        self._new = [seat for seat in self._new if seat.sequence is not sequence]
