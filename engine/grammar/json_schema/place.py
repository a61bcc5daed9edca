"""Where something stands in a request: a path that is written out only for an error."""

from __future__ import annotations

import attrs

from greenroom.schemas.problems import MAX_PARAM

_MAX_VALUE = 80
"""Characters of a name or a value within an error."""


@attrs.frozen(eq=False)
class Place:
    """A path as a chain of its segments, so that long names are not repeated in every path below them.

    Args:
        segment: What is appended to the path of `parent`, with its separator.
    """

    segment: str
    parent: Place | None = None

    def key(self, name: str) -> Place:
        """Return the place of an entry of an object."""
        return Place("." + name, self)

    def item(self, index: int) -> Place:
        """Return the place of an entry of an array."""
        return Place(f"[{index}]", self)

    def __str__(self) -> str:
        segments: list[str] = []
        place: Place | None = self
        while place is not None:
            segments.append(_shortened(place.segment, _MAX_VALUE))
            place = place.parent
        return _printable(_shortened("".join(reversed(segments)), MAX_PARAM))


def shown(value: object) -> str:
    """Return a value of a request for an error: short, however long it is."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number of more than 77 digits"
    text = value if isinstance(value, str) else repr(value)
    return _printable(_shortened(text, _MAX_VALUE))


def _printable(text: str) -> str:
    """Return the text without halves of surrogate pairs, which no answer could carry."""
    return text.encode(errors="replace").decode()


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}…{text[1 - (length - length // 2) :]}"
