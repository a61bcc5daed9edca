"""Streams of answers that consist of messages: reasoning, answers and calls (gpt-oss, Muse)."""

from __future__ import annotations

import re
from typing import Literal

import attrs

from greenroom.engine.parsers.json_values import JsonScanner
from greenroom.engine.parsers.parser import (
    WHITESPACE,
    HeldText,
    ParserEvent,
    PlainText,
    ReasoningEvent,
    ReasoningStream,
    ReasoningText,
    ToolCallStream,
    marker_pattern,
    skip_space,
)

# The messages of gpt-oss, each in a channel, and their boundaries in streamed text.
#
#     <|channel|>analysis<|message|>A thought.<|end|><|start|>assistant<|channel|>final<|message|>An answer.
#
# A message with a recipient (`to=functions.name`) is a call. Source: OpenAI's description of the format
# (https://cookbook.openai.com/articles/openai-harmony).

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
MESSAGE_ENDS = ("<|end|>", "<|call|>", "<|return|>")
CONTROL_TOKENS = (START, CHANNEL, "<|constrain|>", MESSAGE, *MESSAGE_ENDS)

Kind = Literal["outside", "thought", "answer", "call"]
"""Kind of message that a piece of text belongs to; `outside` is text between messages."""

_LONGEST_HEADER = 400
"""Limit in characters on a header, and on white space after an end marker.

Longer ones are treated as text, so that no answer is held back.
"""
_LONGEST_PIECE = 4_096  # Number of characters parsed at a time, since each message copies the unparsed rest
_HEADER_TEXT = r"[\w\s.:=/-]"
_HEADER = re.compile(
    rf"(?:<\|start\|>)?(?P<role>{_HEADER_TEXT}*)(?P<channels>(?:<\|channel\|>{_HEADER_TEXT}*)*)"
    rf"(?:<\|constrain\|>{_HEADER_TEXT}*)?<\|message\|>"
)
_HEADER_SO_FAR = re.compile(rf"(?:<\|(?:start|channel|constrain)\|>|{_HEADER_TEXT})*(?:<[|a-z]*(?:\|>?)?)?\Z")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "python", "browser"})
_CONTENT_TYPES = frozenset({"json", "code", "text", "python"})
RECIPIENT = re.compile(r"\bto=(\S+)")


def _means_all(header: re.Match[str]) -> bool:
    role, *others = [word for word in header["role"].split() if not word.startswith("to=")] or [""]
    if others or (role and role not in _ROLES and "." not in role):
        return False
    for channel in header["channels"].split(CHANNEL)[1:]:
        words = [word for word in channel.split() if not word.startswith("to=")]
        if not set(words[1:]) <= _CONTENT_TYPES:
            return False
    return True


@attrs.frozen
class MessagePart:
    """A piece of a message."""

    kind: Kind
    text: str = ""
    begins: bool = False
    ends: bool = False
    header: str = ""


class HarmonyMessages:
    """Splits an output into messages.

    A marker that is invalid at its position is text of the current message.

    Attributes:
        openings: Markers that open a header.
        ends: Markers that end a message.
    """

    openings: tuple[str, ...] = (START, CHANNEL)
    ends: tuple[str, ...] = MESSAGE_ENDS

    def __init__(self, kind: Kind = "outside") -> None:
        self._markers = (*self.openings, *self.ends)
        self._any = marker_pattern(self._markers)
        self.kind: Kind = kind
        self._pending = ""
        self._space_before = HeldText()
        self._final = False
        self._after_reasoning = False
        self._scanner = JsonScanner()
        self._call_is_whole = False
        self._state: Literal["first", "text", "header", "end", "ended"] = (
            "text" if kind == "thought" else "first"
        )

    def feed(self, text: str) -> list[MessagePart]:
        parts: list[MessagePart] = []
        if self._state == "text" and not self._pending and self._any.search(text) is None:
            self._add_text(parts, text)
            return parts
        while len(text) > _LONGEST_PIECE:
            parts += self.feed(text[:_LONGEST_PIECE])
            text = text[_LONGEST_PIECE:]
        self._pending += text
        while self._pending and self._advance(parts):
            pass
        return parts

    def expect_no_header(self) -> None:
        """Treat the start of the output as text, unless it is a marker that opens a header."""
        if self._state == "first":
            self._state = "text"

    def finish(self) -> list[MessagePart]:
        self._final = True
        return self.feed(self._space_before.take() if not self._pending else "")

    def _advance(self, parts: list[MessagePart]) -> bool:
        match self._state:
            case "first":
                return self._read_first()
            case "text":
                return self._read_text(parts)
            case "header":
                return self._read_header(parts)
            case "end":
                return self._read_end(parts)
            case "ended":
                return self._read_ended()

    def _read_first(self) -> bool:
        """Read a header that the prompt has already begun, or text.

        A prompt ends with the role, so the output may start with the rest of a header.
        """
        self._pending = text = self._space_before.add_space_of(self._pending)
        if "to=".startswith(text) and not self._final:
            return False
        self._pending = self._space_before.take() + text
        self._state = "header" if text.startswith("to=") else "text"
        return True

    def _read_text(self, parts: list[MessagePart]) -> bool:
        found = self._any.search(self._pending)
        complete = found is not None and found.group() in self._markers
        cut = len(self._pending) if found is None or (self._final and not complete) else found.start()
        self._add_text(parts, self._pending[:cut])
        self._pending = self._pending[cut:]
        if found is None or not complete:
            return False
        marker = found.group()
        if marker in self.openings:
            self._state = "header"
        elif self.kind == "outside":
            self._take_marker(parts, marker)
        elif self.kind == "thought" or (self.kind == "call" and self._call_is_whole):
            self._end_message(parts)
        else:
            self._state = "end"
        return True

    def _take_marker(self, parts: list[MessagePart], marker: str) -> None:
        self._add_text(parts, marker)
        self._pending = self._pending[len(marker) :]
        self._state = "text"

    def _add_text(self, parts: list[MessagePart], text: str) -> None:
        if self.kind == "call" and not self._call_is_whole:
            self._call_is_whole = self._scanner.feed(text) >= 0
        if text:
            parts.append(MessagePart(self.kind, text))

    def _end_message(self, parts: list[MessagePart]) -> None:
        parts.append(MessagePart(self.kind, ends=True))
        self._after_reasoning = self.kind == "thought"
        self.kind = "outside"
        self._state = "ended"

    def _read_ended(self) -> bool:
        """Skip separators between messages; several end markers in a row end one message."""
        self._pending = text = self._space_before.add_space_of(self._pending)
        marker = next((one for one in self._markers if text.startswith(one)), "")
        if not marker and not self._final and any(one.startswith(text) for one in self._markers):
            return False
        space = self._space_before.take()
        if not (marker or self._after_reasoning):
            self._pending = space + text
        if marker in self.ends:
            self._pending = text[len(marker) :]
        else:
            self._state = "text"
        return True

    def _read_end(self, parts: list[MessagePart]) -> bool:
        """Decide whether an end marker ends the message, by the text that follows it."""
        marker = next(end for end in self.ends if self._pending.startswith(end))
        at = skip_space(self._pending, len(marker))
        behind = self._pending[at : at + _LONGEST_HEADER]
        if at >= _LONGEST_HEADER:
            self._take_marker(parts, marker)
            return True
        if behind.startswith(self._markers) or (self._final and not behind):
            self._end_message(parts)
            return True
        if not self._final and any(one.startswith(behind) for one in self._markers):
            return False
        self._take_marker(parts, marker)
        return True

    def _read_header(self, parts: list[MessagePart]) -> bool:
        header = _HEADER.match(self._pending, 0, _LONGEST_HEADER)
        if header is not None and _means_all(header):
            self._begin_message(parts, header)
            return True
        may_go_on = (
            header is None and len(self._pending) < _LONGEST_HEADER and _HEADER_SO_FAR.match(self._pending)
        )
        if may_go_on and not self._final:
            return False
        marker = next((one for one in self.openings if self._pending.startswith(one)), "")
        self._take_marker(parts, marker)
        return True

    def _begin_message(self, parts: list[MessagePart], header: re.Match[str]) -> None:
        if self.kind != "outside":
            parts.append(MessagePart(self.kind, ends=True))
        self.kind = self._kind_of(header)
        if self.kind == "call":
            self._scanner, self._call_is_whole = JsonScanner(), False
        parts.append(MessagePart(self.kind, begins=True, header=header.group()))
        self._pending = self._pending[header.end() :]
        self._state = "text"

    def _kind_of(self, header: re.Match[str]) -> Kind:
        channel = header["channels"].rpartition(CHANNEL)[2]
        if RECIPIENT.search(channel) or RECIPIENT.search(header["role"]):
            return "call"
        return "thought" if channel.split()[:1] == ["analysis"] else "answer"


CALL_END = "<|call|>"  # Marker that ends a message that is a call


class MessageReasoningStream(ReasoningStream):
    """Joins consecutive messages with a blank line and strips the white space around each."""

    def __init__(self, messages: HarmonyMessages) -> None:
        self._messages = messages
        self._reasoning, self._answers = _Paragraphs(), _Paragraphs()
        self.in_reasoning = messages.kind == "thought"

    def feed(self, text: str) -> list[ReasoningEvent]:
        return self._events(self._messages.feed(text))

    def finish(self) -> list[ReasoningEvent]:
        return self._events(self._messages.finish())

    def _events(self, parts: list[MessagePart]) -> list[ReasoningEvent]:
        events: list[ReasoningEvent] = []
        for part in parts:
            match part.kind:
                case "thought":
                    if text := self._reasoning.add(part):
                        events.append(ReasoningText(text))
                case "answer":
                    if text := self._answers.add(part):
                        events.append(PlainText(text))
                case "outside":
                    events.append(PlainText(part.text))
                case "call":
                    events.append(PlainText(_call_text(part)))
        self.in_reasoning = self._messages.kind == "thought"
        return events


class _Paragraphs:
    def __init__(self) -> None:
        self._padding: list[str] = []
        self._separator = ""
        self._is_empty = True

    def add(self, part: MessagePart) -> str:
        """Return the text that can be emitted once this part is known."""
        text = part.text.lstrip(WHITESPACE) if self._is_empty else part.text
        body = text.rstrip(WHITESPACE)
        said = ""
        if body:
            said = self._separator + body if self._is_empty else body
            if self._padding:
                said = "".join(self._padding) + said
                self._padding = []
            self._is_empty = False
        if len(body) < len(text):
            self._padding.append(text[len(body) :])
        if part.ends:
            self._separator = self._separator if self._is_empty else "\n\n"
            self._padding, self._is_empty = [], True
        return said


def _call_text(part: MessagePart) -> str:
    role = "" if not part.header or part.header.startswith((START, CHANNEL)) else f"{START}assistant"
    return f"{role}{part.header}{part.text}{CALL_END if part.ends else ''}"


class MessageToolStream(ToolCallStream):
    """Parses tool calls and drops reasoning that no reasoning parser has removed."""

    def __init__(self, calls: ToolCallStream, messages: HarmonyMessages) -> None:
        self._raw_messages = messages
        self._messages = MessageReasoningStream(messages)
        self._calls = calls

    @property
    def malformed_calls(self) -> int:  # type: ignore[override]
        return self._calls.malformed_calls

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._calls.in_call

    def feed(self, text: str) -> list[ParserEvent]:
        if self.reasoning_is_removed:
            self._raw_messages.expect_no_header()
        return self._read(self._messages.feed(text))

    def finish(self) -> list[ParserEvent]:
        self._calls.cut = self.cut
        return [*self._read(self._messages.finish()), *self._calls.finish()]

    def _read(self, events: list[ReasoningEvent]) -> list[ParserEvent]:
        texts = [event.text for event in events if isinstance(event, PlainText)]
        return self._calls.feed("".join(texts)) if texts else []
