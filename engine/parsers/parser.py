"""Interfaces of the parsers of tool calls and of reasoning, with what all parsers share.

A stream's result depends on the whole text only, never on how it was split: it decides only on text it has
read and never revokes a decision (sans-IO, as in h11).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import attrs

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
        """Return a stream for one answer. `tools`: tools offered by the request; calls to others are plain
        text. None accepts every name.
        """

    def begins_call(self, text: str) -> bool | None:
        """Return whether a text starts with a call's marker; None if more text is needed to decide. `text`:
        text without leading white space.
        """
        starts = tuple(start for start, _ in self.markers)
        if text.startswith(starts):
            return True
        return None if any(start.startswith(text) for start in starts) else False

    def reads_outside_calls(self, token: str) -> bool:
        """Return whether this format reads a control token outside a call."""
        return any(token in start for start, _ in self.markers)

    def render(self, name: str, arguments: str) -> str | None:
        """Return a call in this format, for prompts; None if only the model's template can render it."""
        return None

    def render_all(self, calls: Sequence[ParsedCall]) -> str | None:
        rendered = [self.render(call.name, call.arguments) for call in calls]
        return None if None in rendered else "\n".join(filter(None, rendered))


class ReasoningStream(ABC):
    """Splits one output, as it streams, into reasoning and the text after it. One per request.

    Attributes:
        in_reasoning: True if the next text belongs to the reasoning, as far as is known.
        reasoning_ended: True once no more reasoning can follow: `feed` then returns its text unchanged.
    """

    in_reasoning: bool = False
    reasoning_ended: bool = False

    @abstractmethod
    def feed(self, text: str) -> list[ReasoningEvent]:
        """Return the events that a further piece of text completes."""

    @abstractmethod
    def finish(self) -> list[ReasoningEvent]:
        """Return the remaining events at the end of the text; nothing may be fed afterwards."""


class ReasoningParser(ABC):
    """A format of marked reasoning. Stateless: one instance serves all requests of a model.

    Attributes:
        parser_id: Name in capability records.
        markers: Pairs of markers that open and close the reasoning.
        also_opened_by: Other prompt endings that leave the reasoning open.
        forced_end: Text that ends reasoning over its token budget; by default the end marker on its own line.
        answer_starts: Markers that may precede the visible answer.
    """

    parser_id: str
    markers: Markers = ()
    also_opened_by: tuple[str, ...] = ()
    forced_end: str = ""
    answer_starts: tuple[str, ...] = ()

    def reads_outside_reasoning(self, token: str) -> bool:
        """Return whether this format reads a control token while no reasoning is open."""
        starts = (start for start, _ in self.markers)
        return any(token in text for text in (*starts, *self.also_opened_by, *self.answer_starts))

    def is_opened_by(self, prompt: str) -> bool:
        starts = tuple(start for start, _ in self.markers)
        return bool(starts) and prompt.rstrip().endswith((*starts, *self.also_opened_by))

    @abstractmethod
    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        """Return a stream for one output. `starts_open`: True if the prompt ends inside reasoning that the
        template has opened.
        """


class NullToolStream(ToolCallStream):
    def feed(self, text: str) -> list[ParserEvent]:
        return [PlainText(text)] if text else []

    def finish(self) -> list[ParserEvent]:
        return []


class NullToolParser(ToolCallParser):
    parser_id = "null"

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        return NullToolStream()


class NullReasoningStream(ReasoningStream):
    reasoning_ended = True

    def feed(self, text: str) -> list[ReasoningEvent]:
        return [PlainText(text)] if text else []

    def finish(self) -> list[ReasoningEvent]:
        return []


class NullReasoningParser(ReasoningParser):
    parser_id = "null"

    def new_stream(self, starts_open: bool = False) -> ReasoningStream:
        return NullReasoningStream()


@attrs.frozen
class ParsedCall:
    """A tool call as the model wrote it; `arguments` is the JSON text of one object."""

    name: str
    arguments: str


class Malformed(Exception):
    """The block is no tool call, whatever text follows."""


class Unclosed(Malformed):
    """The apparent end of the block is inside a value. `hides_markers`: True if markers inside that value
    have no meaning and cannot open another block.
    """

    def __init__(self, reason: str, hides_markers: bool = False) -> None:
        super().__init__(reason)
        self.hides_markers = hides_markers


WHITESPACE = " \t\r\n"

LONGEST_HEAD = 1_024
"""Limit in characters within which a block shows its kind; tool names and text before them are shorter."""

TOOL_NAME = r"[\w.:/-]+"
"""Pattern of a tool's name outside JSON: grammars write such names, and parsers read them."""

Markers = tuple[tuple[str, str], ...]
"""Pairs of markers that open and close a block; an empty end means that the block ends with the text."""


def marker_pattern(markers: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of the markers, or for a partial marker at the end of the text.

    A marker that starts with another one never matches: the shorter one is complete first, however the text
    is split. The pattern has no groups, so that `re` sees the first characters and skips ordinary text at
    full speed.
    """
    ordered = sorted({marker for marker in markers if marker}, key=len)
    complete = [re.escape(marker) for marker in ordered]
    parts = [rf"{prefix_pattern(marker)}\Z" for marker in ordered if len(marker) > 1]
    return re.compile("|".join([*complete, *parts]) if ordered else r"(?!)")


def prefix_pattern(marker: str) -> str:
    """Return a pattern for the non-empty proper prefixes of a marker of at least two characters."""
    pattern = ""
    for character in reversed(marker[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(marker[0]) + pattern


_SPACE = re.compile(f"[{WHITESPACE}]*")


def skip_space(text: str, position: int) -> int:
    """Return the end of the white space that begins at a position."""
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]


class HeldText:
    """A buffer that joins its pieces of text only once, when they are taken."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        if text:
            self._pieces.append(text)

    def take(self) -> str:
        """Return the buffered text and clear the buffer."""
        if not self._pieces:
            return ""
        text = "".join(self._pieces)
        self._pieces = []
        return text

    def add_space_of(self, text: str) -> str:
        """Hold back the white space at the start of a text; return the rest."""
        rest = text.lstrip(WHITESPACE)
        self.add(text[: len(text) - len(rest)])
        return rest


_is_dry_run: ContextVar[bool] = ContextVar("_is_dry_run", default=False)


def is_dry_run() -> bool:
    return _is_dry_run.get()


@contextmanager
def dry_run() -> Iterator[None]:
    """Mark parsing inside the block as a dry run."""
    token = _is_dry_run.set(True)
    try:
        yield
    finally:
        _is_dry_run.reset(token)


@attrs.frozen
class PlainText:
    text: str


@attrs.frozen
class ReasoningText:
    text: str


@attrs.frozen
class CallName:
    """Start of a call to `name`; its arguments follow."""

    name: str


@attrs.frozen
class CallArguments:
    """Next piece of the JSON text of the current call's arguments."""

    fragment: str


@attrs.frozen
class CallEnd:
    """End of the current call."""


ParserEvent = PlainText | CallName | CallArguments | CallEnd
ReasoningEvent = ReasoningText | PlainText
