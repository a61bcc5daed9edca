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

    row: Sequence
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
        self._stopped: list[QueueEntry] = []
        self._new: list[QueueEntry] = []
        self._fair = FairQueue()

    def __len__(self) -> int:
        return len(self._stopped) + len(self._new)

    def add(self, seat: QueueEntry) -> None:
        """Let a request wait."""
        if seat.row.preempted:
            self._stopped.append(seat)
            self._stopped.sort(key=lambda stopped: stopped.row.serial)
        else:
            self._new.append(seat)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._stopped, self._new)

    def first(self, *, fairly: bool = True) -> QueueEntry | None:
        """Whose turn it is.

        Args:
            fairly: Have clients take turns; else who came first is first, which matters not if there is room
                for all.
        """
        if self._stopped:
            return self._stopped[0]
        if not self._new:
            return None
        if not fairly:
            return self._new[0]
        waiting = [WaitingPrompt(seat.client, seat.conversation, len(seat.row.inputs)) for seat in self._new]
        return self._new[self._fair.choose(waiting)]

    def admit(self, seat: QueueEntry) -> None:
        """The first one gets its room."""
        if seat in self._stopped:
            self._stopped.remove(seat)
            return
        self._new.remove(seat)
        self._fair.charge([seat.client], seat.tokens * seat.choices)

    def leave(self, row: Sequence) -> None:
        """Forget a row, if it is here."""
        self._stopped = [seat for seat in self._stopped if seat.row is not row]
        self._new = [seat for seat in self._new if seat.row is not row]
