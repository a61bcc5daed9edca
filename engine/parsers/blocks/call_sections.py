"""Tool calls that follow one another in a section, each between its own markers."""

from __future__ import annotations

from abc import abstractmethod

from greenroom.engine.parsers.blocks.block_end import BlockEnd
from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.markers import skip_space
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall
from greenroom.engine.parsers.values.offered_tools import OfferedTools


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
    """A format whose blocks are lists of calls, with optional white space between them.

    Attributes:
        separator: Text that may separate two calls, besides white space.
        common_end: Common prefix of the markers that end a section and a call; a text cut off within it
            certainly has no further argument.
    """

    separator: str = ""
    common_end: str = ""

    @abstractmethod
    def read_call(self, text: str, position: int, offered: OfferedTools) -> tuple[ParsedCall, int]:
        """Return the call at a position and the position of its end.

        Raises:
            Unclosed: The text ends inside a value.
            Malformed: No call begins there.
        """

    def new_block_end(self, start: str) -> BlockEnd:
        return _SectionEnd(start, self.ends[start], self.common_end)

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        calls: list[ParsedCall] = []
        position = skip_space(body, 0)
        while position < len(body):
            rest = body[position : position + len(self.common_end) + 1]
            if calls and self.common_end.startswith(rest):
                break
            call, position = self.read_call(body, position, offered)
            calls.append(call)
            position = skip_space(body, position)
            if self.separator and body.startswith(self.separator, position):
                position = skip_space(body, position + len(self.separator))
        if not calls:
            raise Malformed("the section is empty")
        return calls

    def render(self, name: str, arguments: str) -> str | None:
        return self.render_all([ParsedCall(name, arguments)])
