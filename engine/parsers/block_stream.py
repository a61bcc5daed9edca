"""Streaming search for tool-call blocks in a model's output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

from greenroom.engine.parsers.block_format import BlockEnd, BlockFormat
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parser import (
    LONGEST_HEAD,
    WHITESPACE,
    CallArguments,
    CallEnd,
    CallName,
    Malformed,
    ParsedCall,
    ParserEvent,
    PlainText,
    Release,
    ToolCallStream,
    Unclosed,
    is_dry_run,
    skip_space,
)
from greenroom.engine.parsers.stream_buffer import IncrementalParser, StreamBuffer
from greenroom.schemas.logs import get_logger


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


_log = get_logger(__name__)


class BlockStream(TextStream):
    """Parses tool-call blocks in streamed text.

    A malformed block is returned as text up to its end, or up to the next marker inside it, where parsing
    resumes: a marker that the text only mentions does not hide a call behind it.

    Args:
        release: With `immediate`, blocks are parsed while they are written if the format supports it. A
            grammar constrains such output, so a block cut off before its first call has arguments is dropped
            instead of returned as text.
    """

    def __init__(self, parser: BlockFormat, offered: OfferedTools, release: Release = "validated") -> None:
        super().__init__(parser)
        self._offered = offered
        self._streams = release == "immediate"
        self._streamed: StreamedBlock | None = None
        self._start = ""
        self._backtracks = BacktrackLimit()
        self._has_called = self._begins_cut_call = False

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._read == self._read_block

    def _open_block(self, start: str) -> None:
        self._start = start
        self._end = self._parser.new_block_end(start)
        self._streamed = self._new_streamed_block(start) if self._streams else None
        self._read = self._read_block

    def _new_streamed_block(self, start: str) -> StreamedBlock:
        text = self._parser.new_text(self._offered, start)
        return StreamedBlock(text, self._parser.read_calls(text, start))

    def _read_block(self, events: list[ParserEvent]) -> bool:
        block = self._streamed
        if block is None:
            return self._read_whole_block(events)
        if not block.text.started and not self._begin_streamed(block):
            # A head that is too long or no call is parsed again once the whole block is there.
            if block.state == "open" and block.fed < LONGEST_HEAD and not self._final:
                return False
            self._begins_cut_call = self.cut and block.state == "open" and block.fed < LONGEST_HEAD
            self._streamed = None
            return True
        return self._read_streamed(events, block)

    def _begin_streamed(self, block: StreamedBlock) -> bool:
        inside = self._at + len(self._start)
        body_start = self._parser.body_start
        if body_start is not None and not body_start.match(self._pending, inside, inside + LONGEST_HEAD):
            block.state = "refused"
            return False
        block.feed(self._pending[inside + block.fed : inside + LONGEST_HEAD])
        if block.text.started:
            self._at = inside + block.fed
            self._drop_padding()
        return block.text.started

    def _read_streamed(self, events: list[ParserEvent], block: StreamedBlock) -> bool:
        if block.state == "open" and self._at < len(self._pending):
            block.feed(self._pending[self._at :])
            self._at = len(self._pending)
        events += block.take_events(self._final)
        if block.state == "open":
            return False
        remaining = block.text.remaining
        self._dropped += self._at - len(remaining)
        self._pending, self._at = remaining + self._pending[self._at :], 0
        self._streamed = None
        self._end_block(0)
        return True

    def _read_whole_block(self, events: list[ParserEvent]) -> bool:
        text, begin, inside = self._pending, self._at, self._at + len(self._start)
        head = text[inside : inside + LONGEST_HEAD]
        again = head.lstrip(WHITESPACE)
        if self._start and again.startswith(self._start):
            return self._skip_leftover(inside + len(head) - len(again))
        if self._start.startswith(again) and len(head) < LONGEST_HEAD and not self._final:
            return False
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

    def _skip_leftover(self, end: int) -> bool:
        """Treat a marker that the model writes again at once as padding: text, unless a call follows."""
        space = self._pending[self._at + len(self._start) : end]
        self._padding += [self._start, space] if space else [self._start]
        self._at, self._read = end, self._read_text
        return True

    def _is_complete(self, calls: list[ParsedCall], body: str, rest: str) -> bool:
        """Return whether calls without their block's end marker are complete."""
        needs_no_more = not self.cut and all(map(self._offered.has_required_arguments, calls))
        return needs_no_more or self._parser.is_whole(body, rest)

    def _read_on(self, events: list[ParserEvent], error: Malformed, end: int) -> bool:
        """Search for a later end marker after a parse error, or emit the malformed block as text."""
        begin = self._dropped + self._at
        furthest = self._backtracks.count(begin + end)
        if furthest is not None:
            return self._return_as_text(events, "read too often", furthest - begin)
        if isinstance(error, Unclosed):
            # At the end of the text there is no further end marker to find.
            if not (self._final and self._at + end == len(self._pending)) and self._end.skip(end):
                return True
            if error.hides_markers:
                return self._return_as_text(events, str(error), self._end.first(end))
        return self._return_as_text(events, str(error), self._next_marker(self._end.first(end)))

    def _next_marker(self, end: int) -> int:
        """Return the start of the next marker inside a malformed block; `end` if there is none before it."""
        again = self._opening.search(self._pending, self._at + len(self._start), self._at + end)
        return again.start() - self._at if again and again.group() in self._parser.ends else end

    def _return_as_text(self, events: list[ParserEvent], reason: str, end: int) -> bool:
        if self._begins_cut_call:
            self._end_block(len(self._pending) - self._at)
            return True
        raw = self._pending[self._at : self._at + end]
        self.malformed_calls += 1
        _log_broken_call(self._parser.parser_id, reason, raw)
        self._at += end
        self._read = self._read_text
        self._add_text_before_padding(events, raw)
        return True

    def _ends_in_markup(self) -> bool:
        return self.cut and self._streams and self._has_called and self._separator != ""

    def _end_block(self, end: int) -> None:
        self._has_called = True
        self._at += end
        self._drop_padding()
        self._trailers = (self._parser.trailer,) if self._parser.trailer else ()
        self._read = self._read_after


def _log_broken_call(parser: str, reason: str, text: str) -> None:
    if is_dry_run():
        return
    hint = {} if reason == "not a call" else {"hint": "`strict: true` on the tools prevents this"}
    _log.warning("tool call returned as text", parser=parser, reason=reason, characters=len(text), **hint)
    _log.debug("text of the broken tool call", parser=parser, text=text)


class StreamedBlock:
    """Feeds one block to its incremental parser.

    Attributes:
        fed: Number of characters fed so far.
        state: `read` once the block is complete; `refused` if it is malformed from `text.remaining` on.
    """

    def __init__(self, text: StreamBuffer, reading: IncrementalParser[None]) -> None:
        self.text = text
        self.fed = 0
        self.state: Literal["open", "read", "refused"] = "open"
        self._reading = reading

    def feed(self, piece: str) -> None:
        self.text.grow(piece)
        self.fed += len(piece)
        if self.state != "open":
            return
        try:
            next(self._reading)
        except StopIteration:
            self.state = "read"
        except Malformed:
            self.state = "refused"

    def take_events(self, final: bool) -> list[ParserEvent]:
        """Return the pending events; end the open call if it cannot continue."""
        events = self.text.take_events()
        if self.text.in_call and (final or self.state == "refused"):
            self.text.in_call = False
            events.append(CallEnd())
        return events


_MOST = 64


class BacktrackLimit:
    """Counts failed attempts that end no later than an earlier one.

    Positions count from the start of the whole output. Markers without a call may lie in one another's
    blocks, so each block parses the same text again, and a looping model writes thousands of them.
    """

    def __init__(self) -> None:
        self._furthest = -1
        self._count = 0

    def count(self, end: int) -> int | None:
        """Record a failed attempt; after too many, return the position up to which all is text, else None."""
        if end > self._furthest:
            self._furthest, self._count = end, 0
            return None
        self._count += 1
        return self._furthest if self._count > _MOST else None
