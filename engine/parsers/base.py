"""What a parser promises: text in, in pieces of any size; calls, thoughts and plain text out.

A stream's outcome is a function of the whole text it was fed, never of where the pieces were cut: it
decides only on what it has read and never takes a decision back (sans-IO, as in h11).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
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


@attrs.frozen
class Extraction:
    """The calls of a whole answer, and the text around them."""

    calls: tuple[ParsedCall, ...]
    text: str


@attrs.frozen
class Thought:
    """A whole output, split. `reasoning` is None where the model did not think."""

    reasoning: str | None
    text: str


class Malformed(Exception):
    """A block is no call, whatever may follow."""


class Unclosed(Malformed):
    """What looked like the end of a block stands inside a value."""


class ToolCallStream(ABC):
    """Splits one answer, as it comes, into calls and plain text. One per request.

    Attributes:
        broken_calls: Blocks that came back as plain text because they are no call or name no offered tool.
    """

    broken_calls: int = 0

    @abstractmethod
    def feed(self, text: str) -> list[ParserEvent]:
        """Take the next piece and return what it settled."""

    @abstractmethod
    def finish(self) -> list[ParserEvent]:
        """Return what the end of the text settles. Nothing may be fed afterwards."""


class ToolCallParser(ABC):
    """One format of tool calls. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records (document 000, section 5.2).
        markers: What opens and closes a block of calls.
    """

    parser_id: str
    markers: Markers = ()

    @abstractmethod
    def new(self, tools: Sequence[Tool] | None = None, release: Release = "validated") -> ToolCallStream:
        """A stream for one answer.

        Args:
            tools: What was offered; a call to anything else is plain text. None accepts every name.
            release: When calls are handed out.
        """

    def render(self, name: str, arguments: str) -> str | None:
        """How this format writes a call, for prompts; None where only the model's template knows.

        Args:
            arguments: JSON text of one object.
        """
        return None

    def extract(self, text: str, tools: Sequence[Tool] | None = None) -> Extraction:
        """The calls in a whole answer; the same road as a stream's."""
        stream = self.new(tools)
        return collect_calls([*stream.feed(text), *stream.finish()])

    def validates(self, text: str, name: str) -> bool:
        """Whether the answer calls `name` (document 000, section 5.1: used to probe models)."""
        return bool(self.extract(text, [Tool(name)]).calls)


class ThinkingStream(ABC):
    """Splits one output, as it comes, into the thought and what follows it. One per request.

    Attributes:
        in_thought: What comes next is part of the thought, as far as is known.
        settled: Nothing that may still come is part of a thought: `feed` returns its text unchanged.
    """

    in_thought: bool = False
    settled: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ThoughtEvent]:
        """Take the next piece and return what it settled."""

    @abstractmethod
    def finish(self) -> list[ThoughtEvent]:
        """Return what the end of the text settles. Nothing may be fed afterwards."""


class ThinkingParser(ABC):
    """One way of marking thoughts. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records (document 000, section 5.2).
        markers: What opens and closes a thought.
        supports_toggle: Templates of such models take `enable_thinking`.
    """

    parser_id: str
    markers: Markers = ()
    supports_toggle: bool = False

    @abstractmethod
    def new(self, starts_open: bool = False) -> ThinkingStream:
        """A stream for one output.

        Args:
            starts_open: The prompt ends inside a thought that the template has opened.
        """

    def extract(self, text: str, starts_open: bool = False) -> Thought:
        """Thought and answer of a whole output; the same road as a stream's."""
        stream = self.new(starts_open)
        events = [*stream.feed(text), *stream.finish()]
        thoughts = [event.text for event in events if isinstance(event, ThoughtText)]
        answer = "".join(event.text for event in events if isinstance(event, PlainText))
        return Thought("".join(thoughts) if thoughts else None, answer)

    def remove(self, text: str, starts_open: bool = False) -> str:
        """The output without its thought."""
        return self.extract(text, starts_open).text


def collect_calls(events: Iterable[ParserEvent]) -> Extraction:
    """Put the events of a whole answer together."""
    calls: list[ParsedCall] = []
    texts: list[str] = []
    name, fragments = "", list[str]()
    for event in events:
        match event:
            case PlainText(text):
                texts.append(text)
            case CallName(name):
                fragments = []
            case CallArguments(fragment):
                fragments.append(fragment)
            case CallEnd():
                calls.append(ParsedCall(name, "".join(fragments)))
    return Extraction(tuple(calls), "".join(texts))
