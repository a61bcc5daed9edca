"""The interface of parsers of calls: text in, in pieces of any size; calls and plain text out.

A stream's outcome is a function of the whole text it was fed, never of where the pieces were cut: it
decides only on what it has read and never takes a decision back (sans-IO, as in h11).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.parser_events import ParserEvent
from greenroom.schemas.messages import Tool

Release = Literal["validated", "immediate"]
"""When a call is handed out: once its whole block has proved right, or as it is being written.

`immediate` is for text that a grammar keeps right; a call that was begun is not taken back.
"""


class ToolCallStream(ABC):
    """Splits one answer, as it comes, into calls and plain text. One per request.

    Attributes:
        malformed_calls: Blocks that came back as plain text because they are no call or name no offered tool.
        in_call: What comes next is part of a call, as far as is known.
        cut: Set before `finish`: the model did not end the text, so that an argument may be missing where
            nothing in the text says that there is none.
        behind_thoughts: Set before `feed`: what is fed has been read for thoughts, and for the header that a
            prompt may leave unfinished.
    """

    malformed_calls: int = 0
    in_call: bool = False
    cut: bool = False
    behind_thoughts: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ParserEvent]:
        """Return the events that the next piece decides."""

    @abstractmethod
    def finish(self) -> list[ParserEvent]:
        """Return the events that the end of the text decides. Nothing may be fed afterwards."""


class ToolCallParser(ABC):
    """One format of tool calls. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records (document 000, section 5.2).
        markers: What opens and closes a block of calls.
        frames_text: Plain text has markup of this format too, so that it reads answers without tools as well.
        preamble_frame: What stands around text before a call of the same turn, behind the turn's beginning.
    """

    parser_id: str
    markers: Markers = ()
    frames_text: bool = False
    preamble_frame: tuple[str, str] | None = None

    @abstractmethod
    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        """Return a stream for one answer.

        Args:
            tools: What was offered; a call to anything else is plain text. None accepts every name.
            release: When calls are handed out.
        """

    def begins_call(self, text: str) -> bool | None:
        """Return whether a text begins with a call, as far as its marker says; None if that is open yet.

        Args:
            text: Without white space at its beginning.
        """
        starts = tuple(start for start, _ in self.markers)
        if text.startswith(starts):
            return True
        return None if any(start.startswith(text) for start in starts) else False

    def reads_outside_calls(self, token: str) -> bool:
        """Return whether a control token means something to this format where no call is being read."""
        return any(token in start for start, _ in self.markers)

    def render(self, name: str, arguments: str) -> str | None:
        """Return a call as this format writes it, for prompts; None where only the model's template knows.

        Args:
            arguments: JSON text of one object.
        """
        return None

    def render_all(self, calls: Sequence[ParsedCall]) -> str | None:
        """Return all calls of one turn, for prompts: formats that keep them in one block write one."""
        rendered = [self.render(call.name, call.arguments) for call in calls]
        return None if None in rendered else "\n".join(filter(None, rendered))
