"""Blocks without an end marker, which end with the JSON value in them."""

from __future__ import annotations

import re

from greenroom.engine.parsers.base import Release
from greenroom.engine.parsers.block_stream import BlockParser, BlockStream
from greenroom.engine.parsers.json_scanner import JsonScanner
from greenroom.engine.parsers.offered_tools import OfferedTools


class JsonEndedStream(BlockStream):
    """A block is complete where the bracket closes that opens after `header`.

    Blocks that do have an end marker are read as in `BlockStream`.
    """

    def __init__(
        self, parser: BlockParser, offered: OfferedTools, release: Release, header: re.Pattern[str]
    ) -> None:
        super().__init__(parser, offered, release)
        self._header = header

    def _open_block(self, start: str) -> None:
        super()._open_block(start)
        self._value: JsonScanner | None = None

    def _find_end(self) -> tuple[int, int] | None:
        if self._end:
            return super()._find_end()
        if self._value is None:
            header = self._header.match(self._pending, len(self._start))
            if header is not None:
                self._value = JsonScanner()
                self._searched = header.end()
        if self._value is not None:
            end = self._value.feed(self._pending[self._searched :])
            if end >= 0:
                return self._searched + end, self._searched + end
            self._searched = len(self._pending)
        return (len(self._pending), len(self._pending)) if self._final else None
