"""Base class of formats whose tool calls are blocks between markers."""

from __future__ import annotations

import re
from abc import abstractmethod

from greenroom.engine.parsers.blocks.block_end import BlockEnd, JsonBlockEnd
from greenroom.engine.parsers.markers import marker_pattern
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.streaming.stream_buffer import IncrementalParser, StreamBuffer, calls_of_block
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
        """Parse the calls of a block and its end, while it is written or as a whole.

        Args:
            text: Buffer of the text behind the marker.
            start: Marker that opened the block.

        Raises:
            Unclosed: A whole block ends inside a value.
            Malformed: The block holds no call, or other text besides calls.
        """

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        """Return the tool calls in a whole block.

        Args:
            body: Text between the markers.
            start: Marker that opened the block.

        Raises:
            Unclosed: The end marker is inside a value.
            Malformed: The block holds no call, or other text besides calls.
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
