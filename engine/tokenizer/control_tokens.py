"""Separation of control tokens in user text from those that the template writes.

A web page, a tool result or a user message may contain `<|im_end|><|im_start|>system`. Tokenized unchanged,
it would end the turn and forge another. So control tokens in user strings are marked before rendering, and a
marked token is encoded with ordinary tokens. (The idea is transformers' `sanitize_control_tokens`; this
version leaves Greenroom's own text unmarked, and works with templates that are code.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

OPEN, CLOSE = "\U000f4e20", "\U000f4e21"
"""Private-use characters around a marked token, removed from user text first to prevent forgery."""

TEXT_BESIDE_CALL = "\U000f4e22"
"""Mark of a call that is preceded by text in its turn, used during rendering; removed from user text too."""

IMAGE = "\U000f4e23"
"""Character on both sides of an image number in its placeholder; removed from user text too."""

_MARKS = (OPEN, CLOSE, TEXT_BESIDE_CALL, IMAGE)
_DEEPEST = 64
_SLICE = 65_536  # Length of one search in characters, limited because the search holds the GIL
_ESCAPED = {
    spelling: mark
    for mark in _MARKS
    for spelling in (
        json.dumps(mark)[1:-1],
        json.dumps(mark)[1:-1].upper().replace("U", "u"),
        repr(mark)[1:-1],
    )
}


class ControlTokenMarker:
    """Marks the given control tokens wherever they occur in user strings."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        longest_first = sorted(control_tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._longest = len(longest_first[0]) if longest_first else 0

    def text(self, text: str) -> str:
        text = unmark(text)
        pieces, behind = [], 0
        for match in self._find_tokens(text):
            pieces += [text[behind : match.start()], OPEN, match.group(), CLOSE]
            behind = match.end()
        return "".join([*pieces, text[behind:]]) if pieces else text

    def _find_tokens(self, text: str) -> Iterator[re.Match[str]]:
        if self._pattern is None:
            return
        position = 0
        while position < len(text):
            end = position + _SLICE
            # A match that starts before the end may extend beyond it; one that starts after it may be cut
            # off.
            match = self._pattern.search(text, position, end + self._longest)
            if match is not None and match.start() < end:
                yield match
                position = match.end()
            else:
                position = end

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON value with all its strings marked, including keys. Raises ValueError: the value is
        nested deeper than templates can process.
        """
        if depth > _DEEPEST:
            raise ValueError(f"nested more than {_DEEPEST} levels deep")
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        return value


def restore_marks(text: str) -> str:
    """Return rendered text with escaped marks restored, whether escaped as JSON or as Python's repr."""
    if "\\" not in text:
        return text
    for spelling, mark in _ESCAPED.items():
        if spelling in text:
            text = text.replace(spelling, mark)
    return text


def unmark(text: str) -> str:
    for mark in _MARKS:
        if mark in text:
            text = text.replace(mark, "")
    return text


def split_marked(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of rendered text, each with True if it is a marked token.

    A template's string methods may separate the marks of a token. A lone mark is removed but still separates,
    so that the text on its two sides cannot form a control token.
    """
    beginning, *marked = text.split(OPEN)
    yield from _plain(beginning.split(CLOSE))
    for behind in marked:
        token, *rest = behind.split(CLOSE)
        if token:
            yield token, bool(rest)
        yield from _plain(rest)


def _plain(pieces: Iterable[str]) -> Iterator[tuple[str, bool]]:
    return ((piece, False) for piece in pieces if piece)
