"""Events that parsers emit in text order: tool calls, reasoning and plain text."""

from __future__ import annotations

import attrs


@attrs.frozen
class PlainText:
    """Text of the visible answer."""

    text: str


@attrs.frozen
class ReasoningText:
    """Text of the reasoning."""

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
