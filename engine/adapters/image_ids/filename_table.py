"""The table at the end of an answer that says which image has which number (document 002).

Clients may drop images from a conversation once they are described; the table, which stays in the history,
keeps their numbers. Whoever reads it finds the content's hash in the name: `image_5733332c.jpeg`.
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
_OWN_NAME = re.compile(r"image_[0-9a-f]{8}(?:\.[A-Za-z0-9]{1,8})?")
_LONGEST_LINE = 512
"""Characters of a line of a table; expressions would go back and forth in longer ones."""
_LINES_BEGIN = ("|", "<")
_HINTS = ("filename", "Filename", "image_")


@attrs.frozen
class NamedImage:
    """A row of a table."""

    number: int
    name: str


def filename_table(images: Iterable[NamedImage]) -> str:
    """Return what is appended to an answer; empty if there is no image."""
    rows = [f"| {image.number} | {image.name} |" for image in images]
    if not rows:
        return ""
    return "\n\n" + "\n".join((MARKER, "| Image | Filename |", "|-------|----------|", *rows))


def split_tables(text: str) -> tuple[str, Sequence[NamedImage]]:
    """Return an answer as the model wrote it, and the rows of the tables that were appended to it.

    Tables without a marker count if their head is that of such a table; rows without a head, if their name is
    one that is made of a hash.
    """
    if "|" not in text or not any(hint in text for hint in _HINTS):
        return text, ()
    kept: list[str] = []
    rows: list[NamedImage] = []
    inside = False
    for line in text.split("\n"):
        stripped = line.strip() if len(line) <= _LONGEST_LINE else ""
        if stripped[:1] not in _LINES_BEGIN:
            inside = False
            kept.append(line)
        elif _MARKERS.fullmatch(stripped) or _HEADER.fullmatch(stripped):
            if not inside and kept and not kept[-1].strip():
                kept.pop()
            inside = True
        elif inside and _RULE.fullmatch(stripped):
            continue
        elif (row := _ROW.fullmatch(stripped)) and (inside or _OWN_NAME.fullmatch(row[2])):
            if not inside and not rows and kept and not kept[-1].strip():
                kept.pop()
            rows.append(NamedImage(int(row[1]), row[2]))
        else:
            inside = False
            kept.append(line)
    return ("\n".join(kept), tuple(rows)) if rows else (text, ())
