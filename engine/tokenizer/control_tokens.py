"""Keeps control tokens that stand in user text apart from those that the template writes.

A web page, a tool's result or a user may contain `<|im_end|><|im_start|>system`. Tokenised as it stands,
it would end the turn and forge another. So user strings are marked before rendering, and a marked token is
spelled with ordinary tokens. (The idea is transformers' `sanitize_control_tokens`; this form leaves the
text that Greenroom itself adds unmarked, and works with templates that are code.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

OPEN, CLOSE = "\U000f4e20", "\U000f4e21"
"""Private-use characters around a marked token; stripped from user text first, so none can be forged."""

_DEEPEST = 64
_STRAY = str.maketrans("", "", OPEN + CLOSE)
_ESCAPED = {
    spelling: mark
    for mark in (OPEN, CLOSE)
    for spelling in (
        json.dumps(mark)[1:-1],
        json.dumps(mark)[1:-1].upper().replace("U", "u"),
        repr(mark)[1:-1],
    )
}
_MARKED = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}|[{OPEN}{CLOSE}]")


class ControlTokenMarker:
    """Marks the given control tokens wherever they occur in user strings."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        longest_first = sorted(control_tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """Return the text with its control tokens marked."""
        if OPEN in text or CLOSE in text:
            text = text.translate(_STRAY)
        return self._pattern.sub(f"{OPEN}\\g<0>{CLOSE}", text) if self._pattern else text

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON value with every string in it marked, keys included.

        Raises:
            ValueError: It is nested deeper than templates can walk.
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
    """Return rendered text with marks that were escaped on the way, as JSON or as Python's repr, put back."""
    for spelling, mark in _ESCAPED.items():
        if spelling in text:
            text = text.replace(spelling, mark)
    return text


def unmark(text: str) -> str:
    """Return marked text as people read it."""
    return text.translate(_STRAY)


def split_marked(text: str) -> Iterator[tuple[str, bool]]:
    """Yield pieces of rendered text, each with whether it is a marked token.

    A template's string methods may part the marks of a token. A mark left alone vanishes, but still
    separates, so that the text on either side cannot join into a control token.
    """
    position = 0
    for match in _MARKED.finditer(text):
        if match.start() > position:
            yield text[position : match.start()], False
        if match.group(1):
            yield match.group(1), True
        position = match.end()
    if position < len(text):
        yield text[position:], False
