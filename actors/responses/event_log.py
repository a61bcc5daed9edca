"""The events of one run, in one order for all who read them."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from greenroom.actors.core.reply_buffer import ReplyBuffer
from greenroom.schemas.responses_protocol import RunEvent


class EventLog:
    """What was appended, for any number of readers, each at a place of its own.

    A delta joins the one before it only while nobody can have seen that: reading fixes all that is there. So
    every reader counts the same entries, and a run that nobody reads costs no more than its text.

    Attributes:
        changed: Where readers wait for the next entry.
        ended: The last entry is there.
        model: Which model answers, by its own name; known before the first entry.
    """

    def __init__(self, entries: Iterable[RunEvent] = (), model: str | None = None) -> None:
        self.changed = trio.lowlevel.ParkingLot()
        self.ended = False
        self.model = model
        self._fixed: list[RunEvent] = [*entries]
        self._tail = ReplyBuffer()

    def append(self, event: RunEvent) -> None:
        """Append an entry, or let it join the last one."""
        self._tail.add(event)
        self.changed.unpark_all()

    def end(self, event: RunEvent) -> None:
        """Append the last entry."""
        self.ended = True
        self.append(event)

    def entries(self, start: int = 0, most: int | None = None) -> list[RunEvent]:
        """Return entries from `start` on, at most so many; all that are there are fixed by it."""
        if self._tail:
            self._fixed += self._tail.drain()
        return self._fixed[start : None if most is None else start + most]
