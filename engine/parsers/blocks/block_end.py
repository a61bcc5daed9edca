"""Where a block of calls ends, while it is still being written."""

from __future__ import annotations

import re
from collections.abc import Callable

from greenroom.engine.parsers.markers import LONGEST_HEAD, prefix_pattern
from greenroom.engine.parsers.values.json_scanner import JsonScanner

_MAX_ENDS_INSIDE_VALUES = 64  # Then the block counts as broken, so that a model in a loop costs little.


class BlockEnd:
    """Looks for the marker that closes one block. All positions count from the beginning of the block.

    Args:
        start: The marker that opened it.
        end: The marker that closes it; empty if the end of the text does.
        following: A marker that ends it too, because it begins the next.
    """

    def __init__(self, start: str, end: str, following: str = "") -> None:
        self._start = start
        self._end = end
        self._following = following
        self._kept = max(len(end), len(following), 1) - 1
        self._searched = self._passed = len(start)
        self._tail = ""
        self._inside_values: list[int] = []

    def find(self, text: str, begin: int, final: bool) -> tuple[int, int] | None:
        """Return where the block's body ends and where what follows it begins; None if not yet.

        Args:
            text: What there is so far.
            begin: Where in it the block begins.
            final: Nothing will follow.
        """
        start = begin + self._searched
        at = text.find(self._end, start) if self._end else -1
        if self._following:
            following = text.find(self._following, start, at if at >= 0 else len(text))
            if following >= 0:
                self._passed = following - begin + 1
                return following - begin, following - begin
        if at >= 0:
            self._passed = at - begin + len(self._end)
            return at - begin, self._passed
        if final:
            return self._find_final(text, begin)
        self._searched = max(self._searched, len(text) - begin - self._kept)
        return None

    def _find_final(self, text: str, begin: int) -> tuple[int, int]:
        """Return the end of the text, before which the marker may have been begun."""
        unfinished = re.compile(rf"{prefix_pattern(self._end)}\Z") if len(self._end) > 1 else None
        found = unfinished.search(text, begin + self._searched) if unfinished else None
        return (found.start() if found else len(text)) - begin, len(text) - begin

    def begin_long(self, text: str) -> None:
        """Note that `find` saw no end in a text that begins with the block; from now on, ask `goes_on`."""
        self._tail = text[self._searched :]

    def goes_on(self, piece: str) -> bool:
        """Return whether the block surely goes on behind a piece of text, so that nothing need be found."""
        if not self._kept:
            return True
        window = self._tail + piece
        if (self._end and self._end in window) or (self._following and self._following in window):
            return False
        self._tail = window[max(len(window) - self._kept, 0) :]
        self._searched += len(window) - len(self._tail)
        return True

    def skip(self, end: int) -> bool:
        """Treat the end that was found as part of a value; return False if there were too many of them."""
        self._inside_values.append(end)
        self._searched = self._passed
        return len(self._inside_values) <= _MAX_ENDS_INSIDE_VALUES

    def first(self, end: int) -> int:
        """Return the first end that was found, which may stand inside a value; `end` if there was none."""
        return self._inside_values[0] if self._inside_values else end

    def is_cut_short(self, body_end: int, end: int) -> bool:
        """Return whether the text ended before the whole marker was written."""
        return end - body_end < len(self._end)

    def keep(self, text: str, position: int) -> int:
        """Return from where a text must be kept in which there is no closing marker yet."""
        return max(position, len(text) - len(self._end))


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
        self._found: int | None = None

    def find(self, text: str, begin: int, final: bool) -> tuple[int, int] | None:
        if self._value is None:
            limit = min(len(text), begin + LONGEST_HEAD)
            header = self._header.match(text, begin + len(self._start), limit)
            if header is not None:
                self._value = self._new_scanner()
                self._searched = header.end() - begin
        if self._value is not None and self._found is None:
            end = self._value.feed(text, begin + self._searched)
            self._searched = len(text) - begin
            self._found = end - begin if end >= 0 else None
        if self._found is not None:
            return self._found, self._found
        return (len(text) - begin, len(text) - begin) if final else None

    def goes_on(self, piece: str) -> bool:
        if self._value is not None:
            end = self._value.feed(piece)
            self._found = self._searched + end if end >= 0 else None
            self._searched += len(piece)
        return self._found is None
