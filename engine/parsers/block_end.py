"""Where a block of calls ends, while it is still being written."""

from __future__ import annotations

import re
from collections.abc import Callable

from greenroom.engine.parsers.json_scanner import JsonScanner
from greenroom.engine.parsers.markers import prefix_pattern

_MAX_ENDS_INSIDE_VALUES = 64  # Then the block counts as broken, so that a model in a loop costs little.


class BlockEnd:
    """Looks for the marker that closes one block.

    Args:
        start: The marker that opened it.
        end: The marker that closes it; empty if the end of the text does.
    """

    def __init__(self, start: str, end: str) -> None:
        self._start = start
        self._end = end
        self._searched = len(start)
        self._inside_values: list[int] = []

    def find(self, text: str, final: bool) -> tuple[int, int] | None:
        """Return where the block's body ends and where what follows it begins; None if not yet.

        Args:
            text: The block so far, with its start.
            final: Nothing will follow.
        """
        at = text.find(self._end, self._searched) if self._end else -1
        if at >= 0:
            return at, at + len(self._end)
        if not final:
            self._searched = max(self._searched, len(text) - len(self._end) + 1)
            return None
        unfinished = re.compile(rf"{prefix_pattern(self._end)}\Z") if len(self._end) > 1 else None
        found = unfinished.search(text, len(self._start)) if unfinished else None
        return (found.start() if found else len(text)), len(text)

    def skip(self, end: int) -> bool:
        """Treat the end that was found as part of a value; return False if there were too many of them."""
        self._inside_values.append(end)
        self._searched = end
        return len(self._inside_values) <= _MAX_ENDS_INSIDE_VALUES

    def first(self, end: int) -> int:
        """Return the first end that was found, which may stand inside a value; `end` if there was none."""
        return self._inside_values[0] if self._inside_values else end

    def is_cut_short(self, body_end: int, end: int) -> bool:
        """Return whether the text ended before the whole marker was written."""
        return end - body_end < len(self._end)

    def find_marker(self, text: str) -> int:
        """Return where the text goes on behind the closing marker, wherever that stands; -1 if not yet."""
        at = text.find(self._end)
        return at if at < 0 else at + len(self._end)

    def keep(self, text: str) -> str:
        """Return what must be kept of a text in which there is no closing marker yet."""
        return text[-len(self._end) :]


class JsonBlockEnd(BlockEnd):
    """Finds the end of a block without an end marker: its JSON value is complete.

    Args:
        header: What stands before the value.
        new_scanner: Makes what follows the value.
    """

    def __init__(
        self, start: str, header: re.Pattern[str], new_scanner: Callable[[], JsonScanner] = JsonScanner
    ) -> None:
        super().__init__(start, "")
        self._header = header
        self._new_scanner = new_scanner
        self._value: JsonScanner | None = None

    def find(self, text: str, final: bool) -> tuple[int, int] | None:
        if self._value is None:
            header = self._header.match(text, len(self._start))
            if header is not None:
                self._value = self._new_scanner()
                self._searched = header.end()
        if self._value is not None:
            end = self._value.feed(text[self._searched :])
            if end >= 0:
                return self._searched + end, self._searched + end
            self._searched = len(text)
        return (len(text), len(text)) if final else None
