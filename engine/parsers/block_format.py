"""Base class of formats whose tool calls are blocks between markers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable

from greenroom.engine.parsers.json_values import JsonScanner
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import (
    LONGEST_HEAD,
    ParsedCall,
    ToolCallParser,
    marker_pattern,
    prefix_pattern,
)
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer, calls_of_block


class BlockFormat(ToolCallParser):
    """A format whose tool calls are blocks between markers.

    Attributes:
        body_start: Pattern that must match the start of a block and every prefix of that start; otherwise the
            marker is plain text. None accepts any block. Like both headers, it is matched against the first
            `LONGEST_HEAD` characters only.
        json_header: Pattern of the text before the JSON value that ends a block without an end marker; None
            if such a block ends with the text.
        trailer: Marker that may follow a block and is dropped.
        dropped: Further markers without meaning for the client, which are dropped.
        last: Marker that is dropped at the end of an answer; elsewhere it may start a longer marker.
        common_end: Common prefix of the markers that end a section and a call; a text cut off within it
            certainly has no further argument.
        read_with_start: Start markers that are part of a call, so that they are read with the block.
    """

    body_start: re.Pattern[str] | None = None
    json_header: re.Pattern[str] | None = None
    trailer: str = ""
    dropped: tuple[str, ...] = ()
    last: str = ""
    common_end: str = ""
    read_with_start: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.ends = dict(self.markers)
        self.opening = marker_pattern([*self.ends, *self.dropped])

    @abstractmethod
    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        """Parse the calls of a block and its end, while it is written or as a whole. Raises Unclosed: A whole
        block ends inside a value. Raises Malformed: the block holds no call, or other text besides calls.
        """

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        """Return the tool calls in a whole block. Raises Unclosed: the end marker is inside a value. Raises
        Malformed: the block holds no call, or other text besides calls.
        """
        text = self.new_text(offered, start, body, complete=True)
        return calls_of_block(text, self.read_calls(text, start))

    def new_text(
        self, offered: OfferedTools, start: str, body: str = "", *, complete: bool = False
    ) -> StreamBuffer:
        """Return the buffer of a block that a marker opens."""
        opened = start if start in self.read_with_start else ""
        end = self.ends.get(start, "")
        return StreamBuffer(offered, opened + body, end, cut_end=self.common_end, complete=complete)

    def reads_outside_calls(self, token: str) -> bool:
        return super().reads_outside_calls(token) or any(token in text for text in self.dropped)

    def is_whole(self, body: str, rest: str) -> bool:
        """Return whether the calls of a block without its whole end marker certainly have all arguments.
        `rest`: part of the end marker that was written.
        """
        return True

    def new_block_end(self, start: str) -> BlockEnd:
        end = self.ends.get(start, "")
        if not end and self.json_header is not None:
            return JsonBlockEnd(start, self.json_header)
        return BlockEnd(start, end)


_MAX_ENDS_INSIDE_VALUES = 64  # With more, the block is malformed: a looping model must stay cheap.


class BlockEnd:
    """Searches for the end marker of one block.

    All positions count from the start of the block.

    Args:
        end: Marker that closes the block; empty if the block ends with the text.
        following: Marker of the next block, which ends this one too.
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
        """Return the end of the block's body and the end of the block; None if not found yet."""
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
        """Return the end of the text as the block's end, without a partial end marker in the body."""
        unfinished = re.compile(rf"{prefix_pattern(self._end)}\Z") if len(self._end) > 1 else None
        found = unfinished.search(text, begin + self._searched) if unfinished else None
        return (found.start() if found else len(text)) - begin, len(text) - begin

    def begin_long(self, text: str) -> None:
        """Start searching piece by piece, after `find` found no end in this text; then call `goes_on`."""
        self._tail = text[self._searched :]

    def goes_on(self, piece: str) -> bool:
        """Return whether the block certainly continues after a further piece of text."""
        if not self._kept:
            return True
        window = self._tail + piece
        if (self._end and self._end in window) or (self._following and self._following in window):
            return False
        self._tail = window[max(len(window) - self._kept, 0) :]
        self._searched += len(window) - len(self._tail)
        return True

    def skip(self, end: int) -> bool:
        """Treat the end marker found as part of a value; return False if there were too many of these."""
        self._inside_values.append(end)
        self._searched = self._passed
        return len(self._inside_values) <= _MAX_ENDS_INSIDE_VALUES

    def first(self, end: int) -> int:
        """Return the first end marker found, which may be inside a value; `end` if there was none."""
        return self._inside_values[0] if self._inside_values else end

    def is_cut_short(self, body_end: int, end: int) -> bool:
        return end - body_end < len(self._end)

    def keep(self, text: str, position: int) -> int:
        """Return the position from which to keep a text that has no end marker yet."""
        return max(position, len(text) - len(self._end))


class JsonBlockEnd(BlockEnd):
    """Finds the end of a block without an end marker: the end of its JSON value."""

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
