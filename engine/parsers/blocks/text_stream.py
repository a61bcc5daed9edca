"""Streaming of the text around tool-call blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from greenroom.engine.parsers.blocks.block_end import BlockEnd
from greenroom.engine.parsers.blocks.block_format import BlockFormat
from greenroom.engine.parsers.markers import WHITESPACE, skip_space
from greenroom.engine.parsers.parser_events import ParserEvent, PlainText
from greenroom.engine.parsers.tool_call_parser import ToolCallStream


class TextStream(ToolCallStream):
    """Searches text for the markers that open tool-call blocks.

    White space around calls is dropped as padding, so it is held back until text follows. Only the white
    space that separates text before calls from text after them is kept.
    """

    def __init__(self, parser: BlockFormat) -> None:
        self._parser = parser
        self._opening = parser.opening
        # The current parse step; it returns False when it needs more text.
        self._read: Callable[[list[ParserEvent]], bool] = self._read_text
        # Text before `_at` is parsed and is removed after each piece.
        self._pending = ""
        self._at = 0
        self._dropped = 0
        self._long_block: list[str] | None = None
        self._padding: list[str] = []
        # None before any text, empty directly after text; after a call, the white space between text around
        # it.
        self._separator: str | None = None
        self._trailers: tuple[str, ...] = ()
        self._final = self._is_plain = False
        self._end = BlockEnd("", "")

    @abstractmethod
    def _open_block(self, start: str) -> None:
        """Start parsing the block that a marker opens."""

    def feed(self, text: str) -> list[ParserEvent]:
        if self._is_plain and self._opening.search(text) is None:
            events: list[ParserEvent] = []
            self._dropped += len(text)
            self._add_text_before_padding(events, text)
            return events
        return self._feed(text)

    def _feed(self, text: str) -> list[ParserEvent]:
        if self._long_block is not None:
            self._long_block.append(text)
            if self._end.goes_on(text) and not self._final:
                return []
            text, self._long_block = "".join(self._long_block), None
        self._pending = self._pending + text if self._pending else text
        events: list[ParserEvent] = []
        while self._read(events):
            pass
        if self._at:
            self._drop(self._at)
        self._is_plain = not self._pending and self._long_block is None and self._reads_only_text()
        return events

    def _reads_only_text(self) -> bool:
        return self._read == self._read_text

    def _drop(self, characters: int) -> None:
        self._dropped += characters
        self._pending = self._pending[characters:]
        self._at = 0

    def finish(self) -> list[ParserEvent]:
        self._final = True
        events = self.feed("")
        means_nothing = self._pending.rstrip(WHITESPACE) == self._parser.last != ""
        means_nothing = means_nothing or (self._pending != "" and self._ends_in_markup())
        if not means_nothing and (rest := "".join(self._padding) + self._pending):
            events.append(PlainText(rest))
        self._pending, self._padding = "", []
        return events

    def _ends_in_markup(self) -> bool:
        """Return whether a partial marker at the end of the output is certainly not text."""
        return False

    def _read_text(self, events: list[ParserEvent]) -> bool:
        text, at = self._pending, self._at
        found = self._opening.search(text, at)
        if found is None:
            self._pending, self._at = "", 0
            self._dropped += len(text)
            self._add_text_before_padding(events, text[at:])
            return False
        self._at = found.start()
        self._add_text_before_padding(events, text[at : found.start()])
        marker = found.group()
        if marker in self._parser.dropped:
            self._at = found.end()
            return True
        if is_whole := marker in self._parser.ends:
            self._open_block(marker)
        return is_whole

    def _add_text_before_padding(self, events: list[ParserEvent], text: str) -> None:
        """Emit text, but hold back its trailing white space, which may be padding."""
        body = text.rstrip(WHITESPACE)
        if not body:
            if text:
                self._padding.append(text)
            return
        events.append(PlainText("".join(self._padding) + body if self._padding else body))
        if len(body) < len(text):
            self._padding = [text[len(body) :]]
        elif self._padding:
            self._padding = []
        self._separator = ""

    def _drop_padding(self) -> None:
        if self._separator == "":
            self._separator = "".join(piece for piece in self._padding if piece.isspace()) or "\n"
        self._padding = []

    def _read_after(self, events: list[ParserEvent]) -> bool:
        text = self._pending
        self._at = at = skip_space(text, self._at)
        if at == len(text):
            return False
        trailer = next((one for one in self._trailers if text.startswith(one, at)), "")
        if trailer:
            self._at += len(trailer)
            self._trailers = ()
            return True
        if self._trailers:
            rest = text[at : at + max(map(len, self._trailers))]
            if any(trailer.startswith(rest) for trailer in self._trailers):
                self._at = len(text) if self._final else at
                return False
        self._padding = [self._separator] if self._separator else []
        self._read = self._read_text
        return True
