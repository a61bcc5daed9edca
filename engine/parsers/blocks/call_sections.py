"""Tool calls that follow one another in a section, each between its own markers."""

from __future__ import annotations

from abc import abstractmethod

from greenroom.engine.parsers.blocks.block_end import BlockEnd
from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.streaming.stream_buffer import IncrementalParser, StreamBuffer


class _SectionEnd(BlockEnd):
    """Finds the end of a section; a partial marker that may close a call stays in the body."""

    def __init__(self, start: str, end: str, common: str) -> None:
        super().__init__(start, end)
        self._common = common

    def find(self, text: str, begin: int, final: bool) -> tuple[int, int] | None:
        found = super().find(text, begin, final)
        if found is not None and self._common.startswith(text[begin + found[0] : begin + found[1]]):
            return found[1], found[1]
        return found


class SectionParser(BlockParser):
    """A format whose blocks are lists of calls, with optional white space between them."""

    @abstractmethod
    def read_call(self, text: StreamBuffer) -> IncrementalParser[None]:
        """Parse the call that comes next.

        Raises:
            Unclosed: A whole block ends inside a value.
            Malformed: No call comes next.
        """

    def new_block_end(self, start: str) -> BlockEnd:
        return _SectionEnd(start, self.ends[start], self.common_end)

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        while not (text.started and (yield from text.take_end())):
            yield from text.peek()
            yield from self.read_call(text)

    def render(self, name: str, arguments: str) -> str | None:
        return self.render_all([ParsedCall(name, arguments)])
