"""Parsing of one tool-call block while it is written, which is safe because a grammar constrains it."""

from __future__ import annotations

from typing import Literal

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.parser_events import CallEnd, ParserEvent
from greenroom.engine.parsers.streaming.stream_buffer import IncrementalParser, StreamBuffer


class StreamedBlock:
    """Feeds one block to its incremental parser.

    Attributes:
        fed: Number of characters fed so far.
        state: `read` once the block is complete; `refused` if it is malformed from `text.remaining` on.
    """

    def __init__(self, text: StreamBuffer, reading: IncrementalParser[None]) -> None:
        self.text = text
        self.fed = 0
        self.state: Literal["open", "read", "refused"] = "open"
        self._reading = reading

    def feed(self, piece: str) -> None:
        """Feed a further piece of text."""
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
        """Return the pending events; end the open call if it cannot continue.

        Args:
            final: True if no text follows.
        """
        events = self.text.take_events()
        if self.text.in_call and (final or self.state == "refused"):
            self.text.in_call = False
            events.append(CallEnd())
        return events
