"""The interface of parsers: text in, in pieces of any size; calls, thoughts and plain text out.

A stream's outcome is a function of the whole text it was fed, never of where the pieces were cut: it
decides only on what it has read and never takes a decision back (sans-IO, as in h11).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import attrs

from greenroom.schemas.messages import Tool

Release = Literal["validated", "immediate"]
"""When a call is handed out: once its whole block has proved right, or as it is being written.

`immediate` is for text that a grammar keeps right; a call that was begun is not taken back.
"""

Markers = tuple[tuple[str, str], ...]
"""Pairs of what opens and what closes a block; an empty end means that the end of the text closes it."""


@attrs.frozen
class PlainText:
    """Text that belongs to the visible answer."""

    text: str


@attrs.frozen
class ThoughtText:
    """Text that belongs to the thought."""

    text: str


@attrs.frozen
class CallName:
    """A call to `name` begins; the arguments follow."""

    name: str


@attrs.frozen
class CallArguments:
    """The next piece of the JSON text of the current call's arguments."""

    fragment: str


@attrs.frozen
class CallEnd:
    """The current call is complete."""


ParserEvent = PlainText | CallName | CallArguments | CallEnd
ThoughtEvent = ThoughtText | PlainText


@attrs.frozen
class ParsedCall:
    """A call as it was written: `arguments` is the JSON text of one object."""

    name: str
    arguments: str


class Malformed(Exception):
    """A block is no call, whatever may follow."""


class Unclosed(Malformed):
    """What looked like the end of a block stands inside a value."""


class ToolCallStream(ABC):
    """Splits one answer, as it comes, into calls and plain text. One per request.

    Attributes:
        malformed_calls: Blocks that came back as plain text because they are no call or name no offered tool.
    """

    malformed_calls: int = 0

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
    """

    parser_id: str
    markers: Markers = ()
    frames_text: bool = False

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


class ThinkingStream(ABC):
    """Splits one output, as it comes, into the thought and what follows it. One per request.

    Attributes:
        in_thought: What comes next is part of the thought, as far as is known.
        thought_ended: Nothing that may still come is part of a thought: `feed` returns its text unchanged.
    """

    in_thought: bool = False
    thought_ended: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ThoughtEvent]:
        """Return the events that the next piece decides."""

    @abstractmethod
    def finish(self) -> list[ThoughtEvent]:
        """Return the events that the end of the text decides. Nothing may be fed afterwards."""


class ThinkingParser(ABC):
    """One way of marking thoughts. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records (document 000, section 5.2).
        markers: What opens and closes a thought.
        also_opened_by: Further ends of a prompt inside a thought.
        forced_end: What ends a thought whose budget is spent, if not the marker on a line of its own.
        answer_starts: Markers of which one may stand before the visible answer.
    """

    parser_id: str
    markers: Markers = ()
    also_opened_by: tuple[str, ...] = ()
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()

    @abstractmethod
    def new_stream(self, starts_open: bool = False) -> ThinkingStream:
        """Return a stream for one output.

        Args:
            starts_open: The prompt ends inside a thought that the template has opened.
        """
