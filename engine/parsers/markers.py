"""Markers, and finding them in text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

WHITESPACE = " \t\r\n"

LONGEST_HEAD = 1_024
"""Characters in which it shows what a block is: names of tools are shorter, as is what stands before them."""

Markers = tuple[tuple[str, str], ...]
"""Pairs of what opens and what closes a block; an empty end means that the end of the text closes it."""


def marker_pattern(markers: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of the markers, or for the beginning of one at the end of the text.

    A marker that begins with another never matches: the shorter one is complete first, wherever the text
    is cut. No groups, so that `re` sees the first characters and skips ordinary text at full speed.
    """
    ordered = sorted({marker for marker in markers if marker}, key=len)
    complete = [re.escape(marker) for marker in ordered]
    parts = [rf"{prefix_pattern(marker)}\Z" for marker in ordered if len(marker) > 1]
    return re.compile("|".join([*complete, *parts]) if ordered else r"(?!)")


def prefix_pattern(marker: str) -> str:
    """Return a regular expression for the non-empty proper prefixes of a marker of two characters or more."""
    pattern = ""
    for character in reversed(marker[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(marker[0]) + pattern


_SPACE = re.compile(f"[{WHITESPACE}]*")


def skip_space(text: str, position: int) -> int:
    """Return where white space that begins at a position ends."""
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]
