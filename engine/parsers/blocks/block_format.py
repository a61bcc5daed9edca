"""What a format says whose calls stand in blocks between markers."""

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
    """A format whose calls stand between markers.

    Attributes:
        body_start: Must match the beginning of a block, and the beginning of that beginning; where it does
            not, the marker is plain text at once. None accepts anything. Like the two headers, it sees the
            first `LONGEST_HEAD` characters only.
        json_header: What comes before the JSON value with which a block without an end marker ends; None if
            the end of the text ends such a block.
        trailer: A marker that may follow a block and means nothing.
        dropped: Further markers that structure the answer and mean nothing to a reader.
        last: What means nothing as the last thing of an answer; elsewhere it may begin a marker.
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
        """Return the calls in a block.

        Args:
            body: What stands between the markers.
            start: The marker that opened it.

        Raises:
            Unclosed: The end marker stands inside a value.
            Malformed: There is no call, or something besides calls.
        """

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None] | None:
        """Return what reads a block while it is written; None if it has to be complete.

        Joined, what is handed out is what `parse_block` would return.

        Args:
            text: What stands behind the marker, as it comes.
            start: The marker that opened the block.
        """
        return None

    def reads_outside_calls(self, token: str) -> bool:
        return super().reads_outside_calls(token) or any(token in text for text in self.dropped)

    def is_whole(self, body: str, rest: str) -> bool:
        """Return whether calls that were read from a block show by themselves that no argument is missing.

        Args:
            body: What stands in the block.
            rest: How much there is of the marker that closes it; not all.
        """
        return True

    def new_block_end(self, start: str) -> BlockEnd:
        """Return what finds the end of a block that `start` opened."""
        end = self.ends.get(start, "")
        if not end and self.json_header is not None:
            return JsonBlockEnd(start, self.json_header)
        return BlockEnd(start, end)
