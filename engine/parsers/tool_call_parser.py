"""Interface of tool-call parsers: streamed text in, tool calls and plain text out.

A stream's result depends on the whole text only, never on how it was split: it decides only on text it has
read and never revokes a decision (sans-IO, as in h11).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from greenroom.engine.parsers.markers import Markers
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.parser_events import ParserEvent
from greenroom.schemas.messages.messages import Tool

Release = Literal["validated", "immediate"]
"""Release mode of a tool call: once its whole block is valid, or while it is written.

`immediate` requires a grammar that constrains the text, since a call that has begun cannot be revoked.
"""


class ToolCallStream(ABC):
    """Splits one answer, as it streams, into tool calls and plain text. One per request.

    Attributes:
        malformed_calls: Number of blocks emitted as text because they are malformed or name no offered tool.
        in_call: True if the next text belongs to a call, as far as is known.
        cut: Set before `finish`; True if the model did not end the text, so that an argument may be missing
            unless the text shows otherwise.
        reasoning_is_removed: Set before `feed`; True if a reasoning parser has already removed the reasoning
            and the header that a prompt may leave open.
    """

    malformed_calls: int = 0
    in_call: bool = False
    cut: bool = False
    reasoning_is_removed: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ParserEvent]:
        """Return the events that a further piece of text completes."""

    @abstractmethod
    def finish(self) -> list[ParserEvent]:
        """Return the remaining events at the end of the text; nothing may be fed afterwards."""


class ToolCallParser(ABC):
    """A format of tool calls. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records.
        markers: Pairs of markers that open and close a block of calls.
        frames_text: True if plain text has markup of this format too, so that answers without tools are
            parsed as well.
        preamble_frame: Texts around an answer's text before a call in the same turn.
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
            tools: Tools offered by the request; calls to others are plain text. None accepts every name.
            release: Release mode of calls.
        """

    def begins_call(self, text: str) -> bool | None:
        """Return whether a text starts with a call's marker; None if more text is needed to decide.

        Args:
            text: Text without leading white space.
        """
        starts = tuple(start for start, _ in self.markers)
        if text.startswith(starts):
            return True
        return None if any(start.startswith(text) for start in starts) else False

    def reads_outside_calls(self, token: str) -> bool:
        """Return whether this format reads a control token outside a call."""
        return any(token in start for start, _ in self.markers)

    def render(self, name: str, arguments: str) -> str | None:
        """Return a call in this format, for prompts; None if only the model's template can render it.

        Args:
            arguments: JSON text of one object.
        """
        return None

    def render_all(self, calls: Sequence[ParsedCall]) -> str | None:
        """Return all calls of one turn for prompts, in one block if the format requires it."""
        rendered = [self.render(call.name, call.arguments) for call in calls]
        return None if None in rendered else "\n".join(filter(None, rendered))
