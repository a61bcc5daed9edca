"""What parsers make of text: calls, thoughts and plain text, in the order in which they were written."""

from __future__ import annotations

import attrs


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
