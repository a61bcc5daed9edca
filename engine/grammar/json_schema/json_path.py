"""Paths into a request, formatted only for errors."""

from __future__ import annotations

import attrs

from greenroom.schemas.problems import MAX_PARAM

_MAX_VALUE = 80
"""Limit on the characters of a name or value in an error."""


@attrs.frozen(eq=False)
class JsonPath:
    """A path as a linked chain of segments, so that nested paths share long names.

    Args:
        segment: Last segment of the path, with its separator.
        parent: Path of the enclosing value.
    """

    segment: str
    parent: JsonPath | None = None

    def key(self, name: str) -> JsonPath:
        """Return the place of an object's entry."""
        return JsonPath("." + name, self)

    def item(self, index: int) -> JsonPath:
        """Return the place of an array's item."""
        return JsonPath(f"[{index}]", self)

    def __str__(self) -> str:
        segments: list[str] = []
        path: JsonPath | None = self
        while path is not None:
            segments.append(_shortened(path.segment, _MAX_VALUE))
            path = path.parent
        return _printable(_shortened("".join(reversed(segments)), MAX_PARAM))


def shown(value: object) -> str:
    """Return a value of the request for an error, shortened."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number of more than 77 digits"
    text = value if isinstance(value, str) else repr(value)
    return _printable(_shortened(text, _MAX_VALUE))


def _printable(text: str) -> str:
    """Return the text without lone surrogates, which no response can carry."""
    return text.encode(errors="replace").decode()


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}…{text[1 - (length - length // 2) :]}"
