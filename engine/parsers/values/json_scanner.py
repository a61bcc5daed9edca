"""Search for the end of a JSON or Python value while the model writes it."""

from __future__ import annotations

import re

_INSIDE = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class JsonScanner:
    """Follows one JSON object or array through pieces of text; assumes valid JSON."""

    _outside = re.compile(r'["{}\[\]]')

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._escaped = False

    def feed(self, text: str, position: int = 0) -> int:
        """Return the index behind the bracket that closes the value, or -1 if the value continues.

        Args:
            position: Start of the next piece in `text`.
        """
        if self._escaped and position < len(text):
            position += 1
            self._escaped = False
        while True:
            found = (_INSIDE[self._quote] if self._quote else self._outside).search(text, position)
            if found is None:
                return -1
            position = found.end()
            character = found.group()
            if character in _INSIDE:
                self._quote = "" if self._quote else character
            elif character == "\\":
                self._escaped = position == len(text)
                position += 1
            else:
                self._depth += 1 if character in "{[(" else -1
                if self._depth <= 0:
                    return position


class PythonScanner(JsonScanner):
    """Follows one Python list, with strings in either kind of quotes."""

    _outside = re.compile(r"""["'{}\[\]()]""")
