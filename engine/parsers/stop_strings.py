"""Stop strings in streamed text."""

from __future__ import annotations

import re
from collections.abc import Sequence


class StopStrings:
    """Passes text through up to the first stop string.

    The first one is the one completed first, as if characters arrived singly; of two completed at once, the
    longer. Text that may be the start of a stop string is held back.

    Attributes:
        withheld: Text held back, which may be the start of a stop string.
        matched: Stop string that ended the text; None if there is none yet.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(string for string in strings if string)
        self._longest = max(map(len, self._strings), default=0)
        firsts = "".join(re.escape(string[0]) for string in self._strings)
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")
        self.withheld = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Return the text up to the first stop string, without a possible start of one at its end."""
        if self.withheld:
            text = self.withheld + text
        ends = [(text.find(string) + len(string), -len(string), string) for string in self._strings]
        found = [end for end in ends if end[0] >= len(end[2])]
        if found:
            end, _, self.matched = min(found)
            self.withheld = ""
            return text[: end - len(self.matched)]
        cut = self._partial_match(text)
        self.withheld = text[cut:]
        return text[:cut]

    def _partial_match(self, text: str) -> int:
        """Return the start of a possible stop string at the end of the text, else the text's length."""
        for first in self._first.finditer(text, max(0, len(text) - self._longest + 1)):
            rest = text[first.start() :]
            if any(string.startswith(rest) for string in self._strings):
                return first.start()
        return len(text)

    def flush(self) -> str:
        """Return the text held back, which turned out to be no stop string."""
        withheld, self.withheld = self.withheld, ""
        return withheld
