"""Keeps control tokens that stand in user text apart from those that the template writes.

A web page, a tool's result or a user may contain `<|im_end|><|im_start|>system`. Tokenised as it stands,
it would end the turn and forge another. So user strings are marked before rendering, and a marked token is
spelled with ordinary tokens. (The idea is transformers' `sanitize_control_tokens`; this form leaves the
text that Greenroom itself adds unmarked, and works with templates that are code.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

OPEN, CLOSE = "\U000f4e20", "\U000f4e21"
"""Private-use characters around a marked token; stripped from user text first, so none can be forged."""

_STRAY = str.maketrans("", "", OPEN + CLOSE)
_MARKED = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}|[{OPEN}{CLOSE}]")


class Marker:
    """Marks the given control tokens wherever they occur in user strings."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        longest_first = sorted(control_tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """The text with its control tokens marked."""
        if OPEN in text or CLOSE in text:
            text = text.translate(_STRAY)
        return self._pattern.sub(f"{OPEN}\\g<0>{CLOSE}", text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it marked, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def unmark(text: str) -> str:
    """Marked text as people read it."""
    return text.translate(_STRAY)


def split_marked(text: str) -> Iterator[tuple[str, bool]]:
    """Pieces of rendered text, each with whether it is a marked token.

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
