"""The log of a run's events: all readers of a response that is being generated see the same order."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from greenroom.actors.core.reply_buffer import ReplyBuffer
from greenroom.schemas.protocols.responses_protocol import RunEvent


class EventLog:
    """A log of events for any number of readers at different positions.

    A delta is merged into the previous one only until somebody reads that: reading freezes all present
    entries. So every reader counts the same entries, and a run without readers takes no more memory than its
    text.

    Attributes:
        changed: Parking lot where readers wait for the next entry.
        ended: True once the last entry is present.
        model: Name of the answering model; known before the first entry.
    """

    def __init__(self, entries: Iterable[RunEvent] = (), model: str | None = None) -> None:
        self.changed = trio.lowlevel.ParkingLot()
        self.ended = False
        self.model = model
        self._fixed: list[RunEvent] = [*entries]
        self._tail = ReplyBuffer()

    def append(self, event: RunEvent) -> None:
        """Append an entry, or merge it into the last one."""
        self._tail.add(event)
        self.changed.unpark_all()

    def end(self, event: RunEvent) -> None:
        self.ended = True
        self.append(event)

    def entries(self, start: int = 0, most: int | None = None) -> list[RunEvent]:
        """Return at most `most` entries from `start` on; this freezes all present entries."""
        if self._tail:
            self._fixed += self._tail.drain()
        return self._fixed[start : None if most is None else start + most]
