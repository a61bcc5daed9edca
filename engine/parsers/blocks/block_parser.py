"""Parsers of tool calls that are blocks between markers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from greenroom.engine.parsers.blocks.block_format import BlockFormat
from greenroom.engine.parsers.blocks.block_stream import BlockStream
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallStream
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.schemas.messages.messages import Tool


class BlockParser(BlockFormat):
    """A format whose tool calls are blocks between markers."""

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return BlockStream(self, OfferedTools(tools), release)


class OneBlockParser(BlockParser):
    """A format that puts all tool calls of a turn in one block."""

    @abstractmethod
    def render_block(self, calls: Sequence[ParsedCall]) -> str:
        """Return a block of tool calls as text."""

    def render(self, name: str, arguments: str) -> str:
        return self.render_block([ParsedCall(name, arguments)])

    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        return self.render_block(calls)
