"""What a JSON body holds, counted in its bytes as they arrive, so that too much of it is never decoded.

Python's decoder keeps every other thread waiting until it is done, and a byte of JSON may become fifty of
Python objects: `[],[],…`. Counting takes a fraction of a millisecond for each part of a body.
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings import MEGABYTE

MAX_DEPTH = 64
MAX_CONTAINERS = 100_000
"""Arrays and objects in one body; a conversation of 10,000 messages with calls and parts has half of that."""
MAX_MEMBERS = 200_000
"""Members of all objects of one body together."""
MAX_STRINGS = 300_000
"""Names of members and strings of one body together; each takes some ninety bytes."""
MAX_VALUES = 1_000_000
"""Members and items of one body together: as many as a prompt of a million token ids has."""
MAX_ESCAPES = 4_000_000
"""Backslashes in one body: 32 MB of `\\n` take ten times as long to decode as 32 MB of letters."""
MAX_WIDE_BYTES = 6 * MEGABYTE
"""Size of a body with a character beyond U+FFFF: one of them makes Python keep four bytes for every letter of
the text that it stands in, twice while the body is decoded."""

_SLICE = 65_536
_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_ESCAPE = 6
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


class JsonCounter:
    """Counts what is in the parts of one body, given one after the other.

    Text that is no JSON is counted as if it were: up to its first fault, where a decoder stops, counts hold.

    Args:
        max_depth: Levels of arrays and objects.

    Attributes:
        size: Bytes so far.
        containers: Arrays and objects so far.
        members: Members of objects so far.
        values: Items and members so far, but for the first of each array and object.
    """

    def __init__(self, max_depth: float = MAX_DEPTH) -> None:
        self._max_depth = max_depth
        self.size = 0
        self.containers = 0
        self.members = 0
        self.values = 0
        self._escapes = 0
        self._quotes = 0
        self._depth = 0
        self._is_wide = False
        self._in_string = False
        self._open_escape = b""
        self._tail = b""

    @property
    def has_surrogates(self) -> bool:
        """Whether there may be half a surrogate pair among the escapes."""
        return self._is_wide and self._escapes > 0

    def feed(self, part: bytes) -> None:
        """Count what is in the next part.

        Raises:
            ProblemError: 413 that says of what the body holds too much.
        """
        for start in range(0, len(part), _SLICE):
            self._feed_slice(part[start : start + _SLICE])

    def begin_document(self) -> None:
        """Let the next part begin a text of its own, which is counted with those before."""
        self._depth, self._in_string, self._open_escape, self._tail = 0, False, b"", b""

    def _feed_slice(self, part: bytes) -> None:
        self.size += len(part)
        self._find_wide_characters(part)
        outside = self._outside_of_strings(part)
        self.containers += outside.count(b"[") + outside.count(b"{")
        members = outside.count(b":")
        self.members += members
        self.values += outside.count(b",")
        self._refuse_above(self._escapes, MAX_ESCAPES, "escaped characters")
        self._refuse_above(self.containers, MAX_CONTAINERS, "arrays and objects")
        self._refuse_above(self.members, MAX_MEMBERS, "members of objects")
        self._refuse_above(self._quotes // 2, MAX_STRINGS, "strings")
        self._refuse_above(self.values, MAX_VALUES, "values")
        self._follow_depth(outside)

    def _find_wide_characters(self, part: bytes) -> None:
        if not self._is_wide:
            # An escape may have been cut in two.
            text = self._tail + part
            self._tail = text[1 - _LONGEST_ESCAPE :]
            self._is_wide = (not text.isascii() and _FOUR_BYTES.search(text) is not None) or (
                b"\\" in text and _SURROGATE.search(text) is not None
            )
        if self._is_wide and self.size > MAX_WIDE_BYTES:
            raise complex_body(
                f"is larger than {MAX_WIDE_BYTES >> 20} MB and holds characters beyond U+FFFF, like emoji"
            )

    def _outside_of_strings(self, part: bytes) -> bytes:
        """Return what of the part stands outside of strings."""
        text = self._open_escape + part
        self._open_escape = b""
        if b"\\" in text:
            self._escapes += part.count(b"\\")
            text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
            if text.endswith(b"\\"):
                self._open_escape, text = b"\\", text[:-1]
        pieces = text.split(b'"')
        self._quotes += len(pieces) - 1
        outside = b"".join(pieces[self._in_string :: 2])
        self._in_string ^= not len(pieces) % 2
        return outside

    def _follow_depth(self, outside: bytes) -> None:
        steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
        levels = list(accumulate(steps, initial=self._depth))
        self._depth = levels[-1]
        if max(levels) > self._max_depth:
            raise complex_body(f"is nested more than {self._max_depth} levels deep")

    def _refuse_above(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise complex_body(f"holds more than {most} {what}")


def complex_body(why: str) -> ProblemError:
    """Return the error for a body that is too much to decode."""
    return ProblemError(Problem(413, "body_too_complex", f"The JSON body {why}."))
