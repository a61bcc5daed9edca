"""A block of calls that are handed out while they are written, because a grammar keeps them right."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.parser_events import CallEnd, ParserEvent
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading


class StreamedBlock:
    """Feeds a block to what reads it.

    Attributes:
        fed: Characters of the block that were fed.
        state: `read` when all of it was; `refused` when it cannot be read so, from `text.unread` on.
    """

    def __init__(self, text: GrowingText, reading: Reading[None]) -> None:
        self.text = text
        self.fed = 0
        self.state: Literal["open", "read", "refused"] = "open"
        self._reading = reading

    def feed(self, piece: str) -> None:
        """Read a further piece."""
        self.text.grow(piece)
        self.fed += len(piece)
        if self.state != "open":
            return
        try:
            next(self._reading)
        except StopIteration:
            self.state = "read"
        except Malformed:
            self.state = "refused"

    def take_events(self, final: bool) -> list[ParserEvent]:
        """Return what was handed out; a call that goes no further ends.

        Args:
            final: Nothing will follow.
        """
        events = self.text.take_events()
        if self.text.in_call and (final or self.state == "refused"):
            self.text.in_call = False
            events.append(CallEnd())
        return events
