"""The format of gpt-oss: reasoning in the channel `analysis`, calls addressed to `functions.NAME`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.engine.parsers.blocks.block_parser import BlockParser
from greenroom.engine.parsers.formats.harmony_messages import (
    CHANNEL,
    CONTROL_TOKENS,
    START,
    HarmonyMessages,
    MessagePart,
)
from greenroom.engine.parsers.markers import WHITESPACE
from greenroom.engine.parsers.null import NullToolStream
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall
from greenroom.engine.parsers.parser_events import ParserEvent, PlainText, ThoughtEvent, ThoughtText
from greenroom.engine.parsers.streaming.growing_text import GrowingText, Reading
from greenroom.engine.parsers.streaming.streamed_calls import stream_headed_call
from greenroom.engine.parsers.thinking_parser import ThinkingParser, ThinkingStream
from greenroom.engine.parsers.tool_call_parser import Release, ToolCallParser, ToolCallStream
from greenroom.engine.parsers.values.json_calls import normalize_object
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.schemas.messages.messages import Tool

THOUGHT_START, THOUGHT_END = "<|channel|>analysis<|message|>", "<|end|>"
_CALL_END = "<|call|>"


class HarmonyThinkingParser(ThinkingParser):
    """Parses messages in the channel `analysis` as reasoning and others without a recipient as the answer.

    Tool calls pass through unchanged for the tool-call parser.
    """

    parser_id = "harmony"
    markers = ((THOUGHT_START, THOUGHT_END),)
    forced_end = f"{THOUGHT_END}{START}assistant"
    answer_starts = tuple(
        f"{start}<|channel|>final{kind}<|message|>"
        for start in ("", f"{START}assistant")
        for kind in ("", " <|constrain|>json")
    )

    def reads_outside_thoughts(self, token: str) -> bool:
        return token in CONTROL_TOKENS

    def new_stream(self, starts_open: bool = False) -> ThinkingStream:
        return MessageThinkingStream(HarmonyMessages("thought" if starts_open else "outside"))


class MessageThinkingStream(ThinkingStream):
    """Joins consecutive messages with a blank line and strips the white space around each."""

    def __init__(self, messages: HarmonyMessages) -> None:
        self._messages = messages
        self._thoughts, self._answers = _Paragraphs(), _Paragraphs()
        self.in_thought = messages.kind == "thought"

    def feed(self, text: str) -> list[ThoughtEvent]:
        return self._events(self._messages.feed(text))

    def finish(self) -> list[ThoughtEvent]:
        return self._events(self._messages.finish())

    def _events(self, parts: list[MessagePart]) -> list[ThoughtEvent]:
        events: list[ThoughtEvent] = []
        for part in parts:
            match part.kind:
                case "thought":
                    if text := self._thoughts.add(part):
                        events.append(ThoughtText(text))
                case "answer":
                    if text := self._answers.add(part):
                        events.append(PlainText(text))
                case "outside":
                    events.append(PlainText(part.text))
                case "call":
                    events.append(PlainText(_call_text(part)))
        self.in_thought = self._messages.kind == "thought"
        return events


class _Paragraphs:
    """Joins the texts of several messages into one text."""

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
    """Return a part of a call as text, so that the whole call is again between two markers."""
    role = "" if not part.header or part.header.startswith((START, CHANNEL)) else f"{START}assistant"
    return f"{role}{part.header}{part.text}{_CALL_END if part.ends else ''}"


class HarmonyParser(ToolCallParser):
    """gpt-oss: `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`."""

    parser_id = "harmony"
    markers = ((CHANNEL, _CALL_END), (START, _CALL_END))
    preamble_frame = ("<|channel|>commentary<|message|>", f"{THOUGHT_END}{START}assistant")

    def __init__(self) -> None:
        self._calls = _AddressedCalls()

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        if tools is not None and not tools:
            return NullToolStream()
        return MessageToolStream(self._calls.new_stream(tools, release), HarmonyMessages())

    def reads_outside_calls(self, token: str) -> bool:
        return token in CONTROL_TOKENS

    def render(self, name: str, arguments: str) -> str:
        header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        return f"{header}{arguments or '{}'}{_CALL_END}"


class MessageToolStream(ToolCallStream):
    """Parses tool calls and drops reasoning that no reasoning parser has removed."""

    def __init__(self, calls: ToolCallStream, messages: HarmonyMessages) -> None:
        self._raw_messages = messages
        self._messages = MessageThinkingStream(messages)
        self._calls = calls

    @property
    def malformed_calls(self) -> int:  # type: ignore[override]
        return self._calls.malformed_calls

    @property
    def in_call(self) -> bool:  # type: ignore[override]
        return self._calls.in_call

    def feed(self, text: str) -> list[ParserEvent]:
        if self.behind_thoughts:
            self._raw_messages.expect_no_header()
        return self._read(self._messages.feed(text))

    def finish(self) -> list[ParserEvent]:
        self._calls.cut = self.cut
        return [*self._read(self._messages.finish()), *self._calls.finish()]

    def _read(self, events: list[ThoughtEvent]) -> list[ParserEvent]:
        texts = [event.text for event in events if isinstance(event, PlainText)]
        return self._calls.feed("".join(texts)) if texts else []


class _AddressedCalls(BlockParser):
    """Parser of messages with a recipient, each from its header to its end marker."""

    parser_id = "harmony"
    markers = ((CHANNEL, _CALL_END), (START, _CALL_END))
    _header = re.compile(
        r"(?:(?!<\|message\|>)[^{])*\bto=(?:functions\.)?([^\s<]+)"
        r"(?:(?!<\|message\|>)[^{])*<\|message\|>\s*(?=\{)"
    )
    _body = re.compile(
        r"(?:(?!<\|message\|>).)*\bto=([^\s<]+)(?:(?!<\|message\|>).)*<\|message\|>(.*)\Z", re.DOTALL
    )

    def stream_calls(self, text: GrowingText, start: str) -> Reading[None]:
        return stream_headed_call(text, self._header, self.ends[start])

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        parts = self._body.match(body)
        if parts is None:
            raise Malformed("the message has no recipient")
        name, arguments = parts.groups()
        return [ParsedCall(name.removeprefix("functions."), normalize_object(arguments.strip() or "{}"))]

    def is_whole(self, body: str, rest: str) -> bool:
        return body.rstrip().endswith("}")
