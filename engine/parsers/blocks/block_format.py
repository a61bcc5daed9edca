"""Base class of formats whose tool calls are blocks between markers."""

from __future__ import annotations

import re
from abc import abstractmethod

from greenroom.engine.parsers.blocks.block_end import BlockEnd, JsonBlockEnd
from greenroom.engine.parsers.markers import marker_pattern
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.engine.parsers.values.offered_tools import OfferedTools


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
    """

    body_start: re.Pattern[str] | None = None
    json_header: re.Pattern[str] | None = None
    trailer: str = ""
    dropped: tuple[str, ...] = ()
    last: str = ""

    def __init__(self) -> None:
        self.ends = dict(self.markers)
        self.opening = marker_pattern([*self.ends, *self.dropped])

    @abstractmethod
    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        """Return the tool calls in a block.

        Args:
            body: Text between the markers.
            start: Marker that opened the block.

        Raises:
            Unclosed: The end marker is inside a value.
            Malformed: The block holds no call, or other text besides calls.
        """

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None] | None:
        """Return a reader that parses a block while it is written; None if the block must be complete.

        The arguments it emits, joined, equal those of `parse_block`.

        Args:
            text: Buffer of the text behind the marker.
            start: Marker that opened the block.
        """
        return None

    def reads_outside_calls(self, token: str) -> bool:
        return super().reads_outside_calls(token) or any(token in text for text in self.dropped)

    def is_whole(self, body: str, rest: str) -> bool:
        """Return whether the calls of a block without its whole end marker certainly have all arguments.

        Args:
            body: Body of the block.
            rest: Part of the end marker that was written.
        """
        return True

    def new_block_end(self, start: str) -> BlockEnd:
        """Return a finder of the end of a block that `start` opened."""
        end = self.ends.get(start, "")
        if not end and self.json_header is not None:
            return JsonBlockEnd(start, self.json_header)
        return BlockEnd(start, end)
