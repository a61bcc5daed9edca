"""Reads text for blocks of calls, as it comes."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from greenroom.engine.parsers.blocks.block_end import BlockEnd
from greenroom.engine.parsers.blocks.block_format import BlockFormat
from greenroom.engine.parsers.blocks.retries import Retries
from greenroom.engine.parsers.markers import LONGEST_HEAD, WHITESPACE, skip_space
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.parser_events import CallArguments, CallEnd, CallName, ParserEvent, PlainText
from greenroom.engine.parsers.tool_call_parser import ToolCallStream
from greenroom.engine.parsers.trial import is_trial
from greenroom.engine.parsers.values.offered_tools import OfferedTools

_log = structlog.get_logger(__name__)


class BlockStream(ToolCallStream):
    """Reads text for blocks.

    Whitespace around calls is padding and dropped, and so held back until it is known not to be; only what
    separates the text before from text behind is kept.
    A block that is no call comes back as text up to its end, or up to the next marker inside it, from where
    reading goes on: a marker that the text only mentions does not hide a call behind it.
    """

    def __init__(self, parser: BlockFormat, offered: OfferedTools) -> None:
        self._parser = parser
        self._opening = parser.opening
        self._offered = offered
        # How to read on; it returns False if that needs more text.
        self._read: Callable[[list[ParserEvent]], bool] = self._read_text
        # What is not decided begins at `_at`; what came in before it is dropped when a piece has been read.
        self._pending = ""
        self._at = 0
        self._dropped = 0
        self._long_block: list[str] | None = None
        self._padding: list[str] = []
        # None before any text; empty behind text; after a call, what separates that text from more of it.
        self._separator: str | None = None
        self._trailers: tuple[str, ...] = ()
        self._final = self._is_plain = False
        self._start = ""
        self._end = BlockEnd("", "")
        self._retries = Retries()

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._read == self._read_block

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
        is_last = self._pending.rstrip(WHITESPACE) == self._parser.last != ""
        if not is_last and (rest := "".join(self._padding) + self._pending):
            events.append(PlainText(rest))
        self._pending, self._padding = "", []
        return events

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

    def _open_block(self, start: str) -> None:
        self._start = start
        self._end = self._parser.new_block_end(start)
        self._read = self._read_block

    def _add_text_before_padding(self, events: list[ParserEvent], text: str) -> None:
        """Hand out text, except for the whitespace at its end, which may be padding."""
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

    def _read_block(self, events: list[ParserEvent]) -> bool:
        text, begin, inside = self._pending, self._at, self._at + len(self._start)
        body_start = self._parser.body_start
        if body_start is not None and not body_start.match(text, inside, inside + LONGEST_HEAD):
            return self._return_as_text(events, "not a call", len(self._start))
        found = self._end.find(text, begin, self._final)
        if found is None:
            if len(text) >= inside + LONGEST_HEAD:
                self._drop(begin)
                self._end.begin_long(self._pending)
                self._long_block, self._pending = [self._pending], ""
            return False
        body_end, end = found
        body = text[inside : begin + body_end]
        try:
            calls = self._parser.parse_block(body, self._start, self._offered)
        except Malformed as error:
            return self._read_on(events, error, end)
        if not all(self._offered.accepts(call.name) for call in calls):
            return self._return_as_text(events, "tool not offered", end)
        rest = text[begin + body_end : begin + end]
        if self._end.is_cut_short(body_end, end) and not self._is_complete(calls, body, rest):
            return self._return_as_text(events, "cut short", end)
        for call in calls:
            events += [CallName(call.name), CallArguments(call.arguments), CallEnd()]
        self._end_block(end)
        return True

    def _is_complete(self, calls: list[ParsedCall], body: str, rest: str) -> bool:
        """Return whether calls without the end of their block are whole."""
        needs_no_more = not self.cut and all(map(self._offered.has_required_arguments, calls))
        return needs_no_more or self._parser.is_whole(body, rest)

    def _read_on(self, events: list[ParserEvent], error: Malformed, end: int) -> bool:
        """Go on behind an end that stands inside a value, or return what is text for certain."""
        begin = self._dropped + self._at
        furthest = self._retries.count(begin + end)
        if furthest is not None:
            return self._return_as_text(events, "read too often", furthest - begin)
        if isinstance(error, Unclosed):
            # At the end of the text there is no other end to look for.
            if not (self._final and self._at + end == len(self._pending)) and self._end.skip(end):
                return True
            if error.hides_markers:
                return self._return_as_text(events, str(error), self._end.first(end))
        return self._return_as_text(events, str(error), self._next_marker(self._end.first(end)))

    def _next_marker(self, end: int) -> int:
        """Return where the next marker inside a broken block begins; `end` if there is none before."""
        again = self._opening.search(self._pending, self._at + len(self._start), self._at + end)
        return again.start() - self._at if again and again.group() in self._parser.ends else end

    def _return_as_text(self, events: list[ParserEvent], reason: str, end: int) -> bool:
        raw = self._pending[self._at : self._at + end]
        self.malformed_calls += 1
        _log_broken_call(self._parser.parser_id, reason, raw)
        self._at += end
        self._read = self._read_text
        self._add_text_before_padding(events, raw)
        return True

    def _end_block(self, end: int) -> None:
        self._at += end
        self._drop_padding()
        self._trailers = (self._parser.trailer,) if self._parser.trailer else ()
        self._read = self._read_after

    def _drop_padding(self) -> None:
        if self._separator == "":
            self._separator = "".join(self._padding) or "\n"
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


def _log_broken_call(parser: str, reason: str, text: str) -> None:
    if is_trial():
        return
    _log.warning("tool call returned as text", parser=parser, reason=reason, characters=len(text))
    _log.debug("text of the broken tool call", parser=parser, text=text)
