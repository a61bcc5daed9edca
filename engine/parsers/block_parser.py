"""Parsers of tool calls that are blocks between markers, or bare text, or sections of several calls."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from greenroom.engine.parsers.block_format import BlockEnd, BlockFormat
from greenroom.engine.parsers.block_stream import BlockStream
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import (
    LONGEST_HEAD,
    NullToolStream,
    ParsedCall,
    ParserEvent,
    Release,
    ToolCallStream,
    skip_space,
)
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.schemas.messages.messages import Tool


class BlockParser(BlockFormat):
    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return BlockStream(self, OfferedTools(tools), release)


class OneBlockParser(BlockParser):
    """A format that puts all tool calls of a turn in one block."""

    @abstractmethod
    def render_all(self, calls: Sequence[ParsedCall]) -> str:
        """Return a block of tool calls as text."""

    def render(self, name: str, arguments: str) -> str:
        return self.render_all([ParsedCall(name, arguments)])


JSON_STARTS = ('{"name":', '{"type":"function"', '{"function":', '{"parameters":')
"""Possible starts of a JSON tool call, without white space."""

_JSON_SPACE = re.compile(r"[ \t\r\n]+")


def begins_bare_json(text: str, starts: tuple[str, ...] = JSON_STARTS) -> bool | None:
    """Return whether a text starts with a JSON tool call; None if more text is needed to decide."""
    dense = _JSON_SPACE.sub("", text) if text.startswith(("{", "[")) else text
    if dense.startswith(starts):
        return True
    return None if any(start.startswith(dense) for start in starts) else False


class BareBlockParser(BlockParser):
    """A format whose tool calls may lack markers; calls between `markers` are read too."""

    @abstractmethod
    def begins_bare(self, text: str) -> bool | None:
        """Return whether a text starts with an unmarked tool call; None if more text is needed to decide."""

    def begins_call(self, text: str) -> bool | None:
        marked, bare = super().begins_call(text), self.begins_bare(text)
        return marked or bare or (None if None in (marked, bare) else False)

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return _BareStream(self, OfferedTools(tools), release)


class BeginningStream(BlockStream):
    """A stream that treats the start of an answer differently from the rest."""

    def _skip_padding(self) -> str:
        begin = skip_space(self._pending, self._at)
        if begin > self._at:
            self._padding.append(self._pending[self._at : begin])
            self._at = begin
        return self._pending[begin : begin + LONGEST_HEAD]


class _BareStream(BeginningStream):
    def __init__(self, parser: BareBlockParser, offered: OfferedTools, release: Release) -> None:
        super().__init__(parser, offered, release)
        self._begins = parser.begins_bare
        self._only_calls_so_far = True

    def _reads_only_text(self) -> bool:
        return not self._only_calls_so_far and super()._reads_only_text()

    def _read_text(self, events: list[ParserEvent]) -> bool:
        if not self._only_calls_so_far:
            return super()._read_text(events)
        window = self._skip_padding()
        begins = self._begins(window)
        if begins:
            self._open_block("")
            return True
        undecided = begins is None and len(window) < LONGEST_HEAD
        undecided = undecided or any(marker.startswith(window) for marker in self._parser.ends)
        if undecided and (not self._final or self._ends_in_markup()):
            self._at = len(self._pending) if self._final else self._at
            return False
        self._only_calls_so_far = window.startswith(tuple(self._parser.ends))
        return super()._read_text(events)

    def _return_as_text(self, events: list[ParserEvent], reason: str, end: int) -> bool:
        self._only_calls_so_far = False
        return super()._return_as_text(events, reason, end)

    def _end_block(self, end: int) -> None:
        super()._end_block(end)
        if self._start:  # The block may have ended without its end marker, which may still follow.
            self._trailers += (self._parser.ends[self._start],)


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


class SectionParser(OneBlockParser):
    """A format whose blocks are lists of calls, with optional white space between them."""

    @abstractmethod
    def read_call(self, text: StreamBuffer) -> IncrementalParser[None]:
        """Parse the call that comes next. Raises Unclosed: A whole block ends inside a value. Raises
        Malformed: no call comes next.
        """

    def new_block_end(self, start: str) -> BlockEnd:
        return _SectionEnd(start, self.ends[start], self.common_end)

    def read_calls(self, text: StreamBuffer, start: str) -> IncrementalParser[None]:
        while not (text.started and (yield from text.take_end())):
            yield from text.peek()
            yield from self.read_call(text)
