"""Calls without markers: such a block counts only where it begins the answer, or follows another."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.blocks.block_stream import BlockStream
from greenroom.engine.parsers.markers import LONGEST_HEAD, skip_space
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.parser_events import ParserEvent
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallStream
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.schemas.messages import Tool

JSON_STARTS = ('{"name":', '{"type":"function"', '{"function":', '{"parameters":')
"""How an object that is a call begins, without its white space."""

_JSON_SPACE = re.compile(r"[ \t\r\n]+")


def begins_bare_json(text: str, starts: tuple[str, ...] = JSON_STARTS) -> bool | None:
    """Return whether a text begins with a call as JSON; None if that cannot be told yet."""
    dense = _JSON_SPACE.sub("", text) if text.startswith(("{", "[")) else text
    if dense.startswith(starts):
        return True
    return None if any(start.startswith(dense) for start in starts) else False


class BareBlockParser(BlockParser):
    """A format whose calls may stand without markers; those of `markers` are understood too."""

    @abstractmethod
    def begins_bare(self, text: str) -> bool | None:
        """Return whether a text begins with a call without a marker; None if that cannot be told yet."""

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
    """A stream to which the beginning of an answer means more than what follows."""

    def _skip_padding(self) -> str:
        """Hold back the whitespace that comes next; return the beginning of what stands behind it."""
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
        if self._start:  # Its end may have been found without its marker.
            self._trailers += (self._parser.ends[self._start],)
