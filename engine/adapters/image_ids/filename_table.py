"""The table of image numbers and file names at the end of an answer.

Clients may drop images from a conversation once they are described; the table stays in the history and
preserves their numbers. The file name contains the content's hash: `image_5733332c.jpeg`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import attrs

MARKER = "<!-- greenroom:filenames -->"
_MARKERS = re.compile(r"<!--\s*(?:greenroom|mlxk):filenames\s*-->", re.IGNORECASE)
_HEADER = re.compile(r"\|\s*Image\s*\|\s*Filename\s*\|", re.IGNORECASE)
_RULE = re.compile(r"\|[-:| ]*-[-:| ]*\|")
_ROW = re.compile(r"\|\s*([1-9]\d{0,5})\s*\|\s*([^|\s][^|]{0,254}?)\s*\|")
_OWN_NAME = re.compile(r"image_[0-9a-f]{8,64}(?:\.[A-Za-z0-9]{1,8})?")
_LONGEST_LINE = 512
"""Limit on the characters of a table line; the expressions backtrack in longer ones."""
LARGEST_NUMBER = 999_999
"""Largest image number; a row with a larger one is text. No request can hold so many images."""
_LINES_BEGIN = ("|", "<")
_HINTS = ("filename", "Filename", "image_")


@attrs.frozen
class NamedImage:
    """A row of the table."""

    number: int
    name: str


def filename_table(images: Iterable[NamedImage]) -> str:
    """Return the table to append to an answer; empty if there are no images."""
    rows = [f"| {image.number} | {image.name} |" for image in images]
    if not rows:
        return ""
    return "\n\n" + "\n".join((MARKER, "| Image | Filename |", "|-------|----------|", *rows))


def split_tables(text: str) -> tuple[str, Sequence[NamedImage]]:
    """Return an answer without its appended tables, and the rows of these tables.

    A table without a marker needs the right header; a row without a header needs a name made from a hash.
    Rows of the last table come first: that one was appended, while earlier ones may be the model's.
    """
    if "|" not in text or not any(hint in text for hint in _HINTS):
        return text, ()
    kept: list[str] = []
    tables: list[list[NamedImage]] = []
    inside = goes_on = False
    for line in text.split("\n"):
        stripped = line.strip() if len(line) <= _LONGEST_LINE else ""
        if stripped[:1] not in _LINES_BEGIN:
            inside = goes_on = False
            kept.append(line)
        elif _MARKERS.fullmatch(stripped) or _HEADER.fullmatch(stripped):
            if not inside and kept and not kept[-1].strip():
                kept.pop()
            inside = True
        elif inside and _RULE.fullmatch(stripped):
            continue
        elif (row := _ROW.fullmatch(stripped)) and (inside or _OWN_NAME.fullmatch(row[2])):
            if not inside and not tables and kept and not kept[-1].strip():
                kept.pop()
            if not goes_on:
                tables.append([])
            tables[-1].append(NamedImage(int(row[1]), row[2]))
            goes_on = True
        else:
            inside = goes_on = False
            kept.append(line)
    rows = tuple(row for table in reversed(tables) for row in table)
    return ("\n".join(kept), rows) if rows else (text, ())
