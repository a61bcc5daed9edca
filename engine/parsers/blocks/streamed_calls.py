"""Calls that are handed out while they are being written, because a grammar keeps them right."""

from __future__ import annotations

import re
from typing import Literal

from greenroom.engine.parsers.blocks.block_format import BlockFormat
from greenroom.engine.parsers.blocks.block_stream import BlockStream
from greenroom.engine.parsers.markers import LONGEST_HEAD
from greenroom.engine.parsers.parser_events import CallArguments, CallEnd, CallName, ParserEvent
from greenroom.engine.parsers.values.json_scanner import JsonScanner
from greenroom.engine.parsers.values.offered_tools import OfferedTools


class StreamedCallStream(BlockStream):
    """Hands a call out from the name on, where its arguments are one JSON object.

    Args:
        header: What comes before the object. Its group is the name.
    """

    def __init__(self, parser: BlockFormat, offered: OfferedTools, header: re.Pattern[str]) -> None:
        super().__init__(parser, offered)
        self._header = header
        self._scanner = JsonScanner()
        self._part: Literal["", "arguments", "end"] = ""

    def finish(self) -> list[ParserEvent]:
        part = self._part
        if part == "arguments":
            return [CallEnd()]
        return [] if part == "end" else super().finish()

    def _read_block(self, events: list[ParserEvent]) -> bool:
        match self._part:
            case "arguments":
                return self._read_arguments(events)
            case "end":
                return self._read_end()
        return self._open_call(events) or super()._read_block(events)

    def _open_call(self, events: list[ParserEvent]) -> bool:
        inside = self._at + len(self._start)
        found = self._header.match(self._pending, inside, min(len(self._pending), inside + LONGEST_HEAD))
        if found is None or not self._offered.accepts(found.group(1)):
            return False
        end = self._parser.ends.get(self._start)
        if end and end in found.group():  # The block ends before, and is none.
            return False
        events.append(CallName(found.group(1)))
        self._scanner = JsonScanner()
        self._at = found.end()
        self._drop_padding()
        self._part = "arguments"
        return True

    def _read_arguments(self, events: list[ParserEvent]) -> bool:
        end = self._scanner.feed(self._pending, self._at)
        stop = len(self._pending) if end < 0 else end
        if fragment := self._pending[self._at : stop]:
            events.append(CallArguments(fragment))
        self._at = stop
        if end < 0:
            return False
        events.append(CallEnd())
        self._part = "end"
        return True

    def _read_end(self) -> bool:
        end = self._end.find_marker(self._pending, self._at)
        if end < 0:
            self._at = self._end.keep(self._pending, self._at)
            return False
        self._part = ""
        self._end_block(end - self._at)
        return True
