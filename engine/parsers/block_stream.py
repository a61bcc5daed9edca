"""Calls that stand in blocks between markers: most formats are this, and differ in what a block holds."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import structlog

from greenroom.engine.parsers.base import (
    CallArguments,
    CallEnd,
    CallName,
    Malformed,
    ParsedCall,
    ParserEvent,
    PlainText,
    Release,
    ToolCallParser,
    ToolCallStream,
    Unclosed,
)
from greenroom.engine.parsers.json_scanner import JsonScanner
from greenroom.engine.parsers.markers import WHITESPACE, beginnings, marker_pattern
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.schemas.messages import Tool

_log = structlog.get_logger(__name__)
_MAX_ENDS_INSIDE_VALUES = 64  # Then the block counts as broken, so that a model in a loop costs little.

State = Literal["text", "block", "live", "closing", "after"]


class BlockParser(ToolCallParser):
    """A format whose calls stand between markers.

    Attributes:
        body_start: Must match the beginning of a block, and the beginning of that beginning; where it does
            not, the marker is plain text at once. None accepts anything.
        live_header: What comes before an arguments object that can be handed out while it is written.
            Its group is the name.
        trailer: A marker that may follow a block and means nothing.
    """

    body_start: re.Pattern[str] | None = None
    live_header: re.Pattern[str] | None = None
    trailer: str = ""

    def __init__(self) -> None:
        self.ends = dict(self.markers)
        self.opening = marker_pattern(self.ends)
        self.unfinished_end = {
            start: re.compile(rf"{beginnings(end)}\Z") for start, end in self.markers if len(end) > 1
        }

    @abstractmethod
    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        """The calls in a block.

        Args:
            body: What stands between the markers.
            start: The marker that opened it.

        Raises:
            Unclosed: The end marker stands inside a value.
            Malformed: There is no call, or something besides calls.
        """

    def new(self, tools: Sequence[Tool] | None = None, release: Release = "validated") -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return BlockStream(self, OfferedTools(tools), release)


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
        self._live_header = parser.live_header if release == "immediate" else None
        self._state: State = "text"
        self._pending = ""
        self._padding = ""
        # None before any text; empty while text is said; after a call, what parts that text from more of it.
        self._gap: str | None = None
        self._trailer = ""
        self._final = False
        self._scanner = JsonScanner()
        self._open_block("")

    def feed(self, text: str) -> list[ParserEvent]:
        self._pending += text
        events: list[ParserEvent] = []
        while self._advance(events):
            pass
        return events

    def finish(self) -> list[ParserEvent]:
        self._final = True
        events = self.feed("")
        if self._state in ("live", "closing"):
            if self._state == "live":
                events.append(CallEnd())
        else:
            _say(events, self._padding + self._pending)
        self._padding = self._pending = ""
        return events

    def _advance(self, events: list[ParserEvent]) -> bool:
        """Read on in the present state; False if that needs more text."""
        match self._state:
            case "text":
                return self._read_text(events)
            case "block":
                return self._read_block(events)
            case "after":
                return self._read_after()
            case "live":
                return self._read_live(events)
            case "closing":
                return self._read_closing()

    def _read_text(self, events: list[ParserEvent]) -> bool:
        text = self._pending
        found = self._parser.opening.search(text)
        if found is None:
            self._pending = ""
            self._release(events, text)
            return False
        self._pending = text[found.start() :]
        self._release(events, text[: found.start()])
        if found.group() not in self._parser.ends:
            return False
        self._open_block(found.group())
        self._state = "block"
        return True

    def _open_block(self, start: str) -> None:
        self._start = start
        self._end = self._parser.ends.get(start, "")
        self._searched = len(start)
        self._ends_inside_values: list[int] = []

    def _release(self, events: list[ParserEvent], text: str) -> None:
        """Hand out text, except for the whitespace at its end, which may be padding."""
        body = text.rstrip(WHITESPACE)
        if not body:
            self._padding += text
            return
        events.append(PlainText(self._padding + body))
        self._padding = text[len(body) :]
        self._gap = ""

    def _read_block(self, events: list[ParserEvent]) -> bool:
        if self._parser.body_start and not self._parser.body_start.match(self._pending, len(self._start)):
            return self._break(events, "not a call", len(self._start))
        if self._live_header is not None and self._open_live(events, self._live_header):
            return True
        end = self._find_end()
        if end is None:
            return False
        body_end, cut = end
        body = self._pending[len(self._start) : body_end]
        try:
            calls = self._parser.parse_block(body, self._start, self._offered)
        except Unclosed as error:
            if not self._final or cut < len(self._pending):
                self._ends_inside_values.append(cut)
                self._searched = cut
                if len(self._ends_inside_values) <= _MAX_ENDS_INSIDE_VALUES:
                    return True
            return self._break(events, str(error), self._broken_end(cut))
        except Malformed as error:
            return self._break(events, str(error), self._broken_end(cut))
        if not all(self._offered.accepts(call.name) for call in calls):
            return self._break(events, "tool not offered", cut)
        cut_short = cut - body_end < len(self._end)
        if cut_short and not all(map(self._offered.complete, calls)):
            return self._break(events, "cut short", cut)
        for call in calls:
            events += [CallName(call.name), CallArguments(call.arguments), CallEnd()]
        self._close(cut)
        return True

    def _find_end(self) -> tuple[int, int] | None:
        """Where the block's body ends, and where what follows it begins; None if not yet."""
        text = self._pending
        at = text.find(self._end, self._searched) if self._end else -1
        if at >= 0:
            return at, at + len(self._end)
        if not self._final:
            self._searched = max(self._searched, len(text) - len(self._end) + 1)
            return None
        unfinished = self._parser.unfinished_end.get(self._start)
        found = unfinished.search(text, len(self._start)) if unfinished else None
        return (found.start() if found else len(text)), len(text)

    def _broken_end(self, cut: int) -> int:
        """How much of a broken block is text for certain: up to its first end, or a marker before that."""
        first = self._ends_inside_values[0] if self._ends_inside_values else cut
        again = self._parser.opening.search(self._pending, len(self._start), first)
        return again.start() if again and again.group() in self._parser.ends else first

    def _break(self, events: list[ParserEvent], reason: str, cut: int) -> bool:
        raw = self._pending[:cut]
        self.broken_calls += 1
        parser = self._parser.parser_id
        _log.warning("tool call returned as text", parser=parser, reason=reason, characters=len(raw))
        _log.debug("text of the broken tool call", parser=parser, text=raw)
        self._pending = self._pending[cut:]
        self._state = "text"
        self._release(events, raw)
        return True

    def _close(self, cut: int) -> None:
        self._pending = self._pending[cut:]
        self._drop_padding()
        self._trailer = self._parser.trailer
        self._state = "after"

    def _drop_padding(self) -> None:
        if self._gap == "":
            self._gap = self._padding or "\n"
        self._padding = ""

    def _read_after(self) -> bool:
        self._pending = text = self._pending.lstrip(WHITESPACE)
        if not text:
            return False
        if self._trailer and text.startswith(self._trailer):
            self._pending = text[len(self._trailer) :]
            self._trailer = ""
            return True
        if self._trailer.startswith(text):
            self._pending = "" if self._final else text
            return False
        self._padding = self._gap or ""
        self._state = "text"
        return True

    def _open_live(self, events: list[ParserEvent], header: re.Pattern[str]) -> bool:
        found = header.match(self._pending, len(self._start))
        if found is None or not self._offered.accepts(found.group(1)):
            return False
        events.append(CallName(found.group(1)))
        self._scanner = JsonScanner()
        self._pending = self._pending[found.end() :]
        self._drop_padding()
        self._state = "live"
        return True

    def _read_live(self, events: list[ParserEvent]) -> bool:
        end = self._scanner.feed(self._pending)
        fragment = self._pending if end < 0 else self._pending[:end]
        if fragment:
            events.append(CallArguments(fragment))
        self._pending = self._pending[len(fragment) :]
        if end < 0:
            return False
        events.append(CallEnd())
        self._state = "closing"
        return True

    def _read_closing(self) -> bool:
        at = self._pending.find(self._end)
        if at < 0:
            self._pending = self._pending[-len(self._end) :]
            return False
        self._close(at + len(self._end))
        return True


def _say(events: list[ParserEvent], text: str) -> None:
    if text:
        events.append(PlainText(text))
