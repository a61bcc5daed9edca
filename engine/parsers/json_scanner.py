"""Finding where a JSON value ends while it is still being written."""

from __future__ import annotations

import re

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')


class JsonScanner:
    """Follows one JSON object or array through pieces of text. It trusts the JSON to be right."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> int:
        """Return the index in `text` just behind the bracket that closes the value, or -1 if it goes on."""
        position = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        while True:
            found = (_IN_STRING if self._in_string else _OUTSIDE).search(text, position)
            if found is None:
                return -1
            position = found.end()
            character = found.group()
            if character == '"':
                self._in_string = not self._in_string
            elif character == "\\":
                self._escaped = position == len(text)
                position += 1
            else:
                self._depth += 1 if character in "{[" else -1
                if self._depth <= 0:
                    return position
