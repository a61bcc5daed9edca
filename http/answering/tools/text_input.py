"""Text input of custom tools, extracted from the JSON arguments of a call."""

from __future__ import annotations

import json
import re

from greenroom.schemas.messages.text_tools import ARGUMENT

_HEAD = re.compile(rf'\s*\{{\s*"{ARGUMENT}"\s*:\s*"')
_PARTS = "|".join(f'"{ARGUMENT[:end]}' for end in range(len(ARGUMENT) + 1))
_HEAD_SO_FAR = re.compile(rf'\s*(?:\{{\s*(?:{_PARTS}|"{ARGUMENT}"\s*:?\s*)?)?\Z')
_INSIDE = re.compile(
    r'(?:[^"\\]++|\\(?:[^u]|u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|[0-9a-fA-F]{4})))*+'
)
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


class TextInputReader:
    """Extracts the text incrementally while the model writes the arguments.

    An unconstrained call may have arguments other than `{"input": "…"}`. These are read once complete: the
    text is their only string value, or else the arguments themselves.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._part = "head"

    def feed(self, fragment: str) -> str:
        """Return the text that a fragment of the arguments completes."""
        self._pending += fragment
        if self._part == "head":
            self._read_head()
        if self._part == "text":
            return self._read_text()
        return self._read_other() if self._part == "other" else ""

    def finish(self) -> str:
        """Return the remaining text when the arguments end, complete or not."""
        rest, part = self._pending, self._part
        self._pending, self._part = "", "ended"
        return rest if part == "other" else ""

    def _read_head(self) -> None:
        if found := _HEAD.match(self._pending):
            self._pending, self._part = self._pending[found.end() :], "text"
        elif not _HEAD_SO_FAR.match(self._pending):
            self._part = "other"

    def _read_text(self) -> str:
        end = _INSIDE.match(self._pending).end()  # type: ignore[union-attr]
        if not self._pending.startswith('"', end) and (half := _HALF_PAIR.search(self._pending, 0, end)):
            end = half.start()
        inside, self._pending = self._pending[:end], self._pending[end:]
        if self._pending.startswith('"'):
            self._pending, self._part = "", "ended"
        return str(json.loads(f'"{inside}"', strict=False))

    def _read_other(self) -> str:
        try:
            arguments = json.loads(self._pending)
        except (ValueError, RecursionError):
            return ""
        texts = list(arguments.values()) if isinstance(arguments, dict) else []
        text = texts[0] if len(texts) == 1 and isinstance(texts[0], str) else self._pending
        self._pending, self._part = "", "ended"
        return text


def text_of(arguments: str) -> str:
    """Return the text of a call whose arguments are complete, or were cut off."""
    reader = TextInputReader()
    return reader.feed(arguments) + reader.finish()
