"""Calls that stand in blocks between markers: most formats are this, and differ in what a block holds."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import structlog

from greenroom.engine.parsers.block_end import BlockEnd, JsonBlockEnd
from greenroom.engine.parsers.json_scanner import JsonScanner
from greenroom.engine.parsers.markers import WHITESPACE, marker_pattern
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.parser_events import CallArguments, CallEnd, CallName, ParserEvent, PlainText
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallParser, ToolCallStream
from greenroom.schemas.messages import Tool

_log = structlog.get_logger(__name__)

State = Literal["text", "block", "streamed arguments", "streamed end", "after"]


class BlockParser(ToolCallParser):
    """A format whose calls stand between markers.

    Attributes:
        body_start: Must match the beginning of a block, and the beginning of that beginning; where it does
            not, the marker is plain text at once. None accepts anything.
        json_header: What comes before the JSON value with which a block without an end marker ends; None if
            the end of the text ends such a block.
        streamed_header: What comes before an arguments object that can be handed out while it is written.
            Its group is the name.
        trailer: A marker that may follow a block and means nothing.
        dropped: Further markers that structure the answer and mean nothing to a reader.
    """

    body_start: re.Pattern[str] | None = None
    json_header: re.Pattern[str] | None = None
    streamed_header: re.Pattern[str] | None = None
    trailer: str = ""
    dropped: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.ends = dict(self.markers)
        self.opening = marker_pattern([*self.ends, *self.dropped])

    @abstractmethod
    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        """Return the calls in a block.

        Args:
            body: What stands between the markers.
            start: The marker that opened it.

        Raises:
            Unclosed: The end marker stands inside a value.
            Malformed: There is no call, or something besides calls.
        """

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return BlockStream(self, OfferedTools(tools), release)

    def reads_outside_calls(self, token: str) -> bool:
        return super().reads_outside_calls(token) or any(token in text for text in self.dropped)

    def is_whole(self, body: str, rest: str) -> bool:
        """Return whether calls that were read from a block show by themselves that no argument is missing.

        Args:
            body: What stands in the block.
            rest: How much there is of the marker that closes it; not all.
        """
        return True

    def new_block_end(self, start: str) -> BlockEnd:
        """Return what finds the end of a block that `start` opened."""
        end = self.ends.get(start, "")
        if not end and self.json_header is not None:
            return JsonBlockEnd(start, self.json_header)
        return BlockEnd(start, end)


class BlockStream(ToolCallStream):
    """Reads text for blocks.

    Whitespace around calls is padding and dropped, and so held back until it is known not to be; only what
    separates the text before from text behind is kept.
    A block that is no call comes back as text up to its end, or up to the next marker inside it, from where
    reading goes on: a marker that the text only mentions does not hide a call behind it.
    """

    def __init__(self, parser: BlockParser, offered: OfferedTools, release: Release) -> None:
        self._parser = parser
        self._offered = offered
        self._streamed_header = parser.streamed_header if release == "immediate" else None
        self._state: State = "text"
        self._pending = ""
        self._padding = ""
        # None before any text; empty behind text; after a call, what separates that text from more of it.
        self._separator: str | None = None
        self._trailers: tuple[str, ...] = ()
        self._final = False
        self._scanner = JsonScanner()
        self._start = ""
        self._end = BlockEnd("", "")

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._state not in ("text", "after")

    def feed(self, text: str) -> list[ParserEvent]:
        self._pending += text
        events: list[ParserEvent] = []
        while self._advance(events):
            pass
        return events

    def finish(self) -> list[ParserEvent]:
        self._final = True
        events = self.feed("")
        if self._state == "streamed arguments":
            events.append(CallEnd())
        elif self._state != "streamed end" and (rest := self._padding + self._pending):
            events.append(PlainText(rest))
        self._padding = self._pending = ""
        return events

    def _advance(self, events: list[ParserEvent]) -> bool:
        """Read on in the present state; return False if that needs more text."""
        match self._state:
            case "text":
                return self._read_text(events)
            case "block":
                return self._read_block(events)
            case "after":
                return self._read_after()
            case "streamed arguments":
                return self._read_streamed_arguments(events)
            case "streamed end":
                return self._read_streamed_end()

    def _read_text(self, events: list[ParserEvent]) -> bool:
        text = self._pending
        found = self._parser.opening.search(text)
        if found is None:
            self._pending = ""
            self._add_text_before_padding(events, text)
            return False
        self._pending = text[found.start() :]
        self._add_text_before_padding(events, text[: found.start()])
        if found.group() in self._parser.dropped:
            self._pending = text[found.end() :]
            return True
        if found.group() not in self._parser.ends:
            return False
        self._open_block(found.group())
        return True

    def _open_block(self, start: str) -> None:
        self._start = start
        self._end = self._parser.new_block_end(start)
        self._state = "block"

    def _add_text_before_padding(self, events: list[ParserEvent], text: str) -> None:
        """Hand out text, except for the whitespace at its end, which may be padding."""
        body = text.rstrip(WHITESPACE)
        if not body:
            self._padding += text
            return
        events.append(PlainText(self._padding + body))
        self._padding = text[len(body) :]
        self._separator = ""

    def _read_block(self, events: list[ParserEvent]) -> bool:
        if self._parser.body_start and not self._parser.body_start.match(self._pending, len(self._start)):
            return self._return_as_text(events, "not a call", len(self._start))
        if self._streamed_header is not None and self._open_streamed_call(events, self._streamed_header):
            return True
        found = self._end.find(self._pending, self._final)
        if found is None:
            return False
        body_end, end = found
        body = self._pending[len(self._start) : body_end]
        try:
            calls = self._parser.parse_block(body, self._start, self._offered)
        except Unclosed as error:
            # At the end of the text there is no other end to look for.
            if not (self._final and end == len(self._pending)) and self._end.skip(end):
                return True
            end = self._end.first(end) if error.hides_markers else self._end_of_text(end)
            return self._return_as_text(events, str(error), end)
        except Malformed as error:
            return self._return_as_text(events, str(error), self._end_of_text(end))
        if not all(self._offered.accepts(call.name) for call in calls):
            return self._return_as_text(events, "tool not offered", end)
        if self._end.is_cut_short(body_end, end) and not self._is_complete(calls, body, body_end, end):
            return self._return_as_text(events, "cut short", end)
        for call in calls:
            events += [CallName(call.name), CallArguments(call.arguments), CallEnd()]
        self._end_block(end)
        return True

    def _is_complete(self, calls: list[ParsedCall], body: str, body_end: int, end: int) -> bool:
        """Return whether calls without the end of their block are whole."""
        if self.cut and not self._parser.is_whole(body, self._pending[body_end:end]):
            return False
        return all(map(self._offered.has_required_arguments, calls))

    def _end_of_text(self, end: int) -> int:
        """Return how much of a broken block is text for certain: up to its first end, or a marker before."""
        first = self._end.first(end)
        again = self._parser.opening.search(self._pending, len(self._start), first)
        return again.start() if again and again.group() in self._parser.ends else first

    def _return_as_text(self, events: list[ParserEvent], reason: str, end: int) -> bool:
        raw = self._pending[:end]
        self.malformed_calls += 1
        parser = self._parser.parser_id
        _log.warning("tool call returned as text", parser=parser, reason=reason, characters=len(raw))
        _log.debug("text of the broken tool call", parser=parser, text=raw)
        self._pending = self._pending[end:]
        self._state = "text"
        self._add_text_before_padding(events, raw)
        return True

    def _end_block(self, end: int) -> None:
        self._pending = self._pending[end:]
        self._drop_padding()
        self._trailers = (self._parser.trailer,) if self._parser.trailer else ()
        self._state = "after"

    def _drop_padding(self) -> None:
        if self._separator == "":
            self._separator = self._padding or "\n"
        self._padding = ""

    def _read_after(self) -> bool:
        self._pending = text = self._pending.lstrip(WHITESPACE)
        if not text:
            return False
        trailer = next(filter(text.startswith, self._trailers), "")
        if trailer:
            self._pending = text[len(trailer) :]
            self._trailers = ()
            return True
        if any(trailer.startswith(text) for trailer in self._trailers):
            self._pending = "" if self._final else text
            return False
        self._padding = self._separator or ""
        self._state = "text"
        return True

    def _open_streamed_call(self, events: list[ParserEvent], header: re.Pattern[str]) -> bool:
        found = header.match(self._pending, len(self._start))
        if found is None or not self._offered.accepts(found.group(1)):
            return False
        events.append(CallName(found.group(1)))
        self._scanner = JsonScanner()
        self._pending = self._pending[found.end() :]
        self._drop_padding()
        self._state = "streamed arguments"
        return True

    def _read_streamed_arguments(self, events: list[ParserEvent]) -> bool:
        end = self._scanner.feed(self._pending)
        fragment = self._pending if end < 0 else self._pending[:end]
        if fragment:
            events.append(CallArguments(fragment))
        self._pending = self._pending[len(fragment) :]
        if end < 0:
            return False
        events.append(CallEnd())
        self._state = "streamed end"
        return True

    def _read_streamed_end(self) -> bool:
        end = self._end.find_marker(self._pending)
        if end < 0:
            self._pending = self._end.keep(self._pending)
            return False
        self._end_block(end)
        return True
