"""Markers and the search for them in streamed text."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
