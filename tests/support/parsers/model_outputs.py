"""Parsers' results for a whole answer, fed in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.parser import (
    CallArguments,
    CallEnd,
    CallName,
    ParsedCall,
    ParserEvent,
    PlainText,
    ReasoningParser,
    ReasoningText,
    Release,
    ToolCallParser,
    ToolCallStream,
)
from greenroom.engine.parsers.stream_processor import Delta, StreamProcessor
from greenroom.schemas.events.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.messages.messages import Tool, ToolCall
from greenroom.schemas.messages.prepared_input import PreparedPrompt


@attrs.frozen
class ParsedAnswer:
    """A parsed answer; `reasoning` is None if there is none."""

    text: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]


def parse_answer(processor: StreamProcessor, pieces: Sequence[str]) -> ParsedAnswer:
    """Feed the pieces to a new stream processor, and join its deltas."""
    return collect_answer(
        [*(delta for piece in pieces for delta in processor.feed(piece)), *processor.finish()]
    )


def collect_answer(deltas: Iterable[Delta]) -> ParsedAnswer:
    """Join the deltas of a whole answer."""
    texts, thoughts, calls = list[str](), list[str](), dict[int, ToolCall]()
    for delta in deltas:
        match delta:
            case TextDelta():
                texts.append(delta.text)
            case ReasoningDelta():
                thoughts.append(delta.text)
            case ToolCallDelta():
                call = calls.get(delta.call) or ToolCall(delta.id or "", delta.name or "", "")
                calls[delta.call] = attrs.evolve(call, arguments=call.arguments + delta.arguments)
    return ParsedAnswer("".join(texts), "".join(thoughts) if thoughts else None, tuple(calls.values()))


@attrs.frozen
class ExtractedCalls:
    """The tool calls of an answer, and the text around them."""

    calls: tuple[ParsedCall, ...]
    text: str


@attrs.frozen
class ExtractedReasoning:
    """An output split into reasoning and text; `reasoning` is None if there is none."""

    reasoning: str | None
    text: str


def extract_calls(parser: ToolCallParser, text: str, tools: Sequence[Tool] | None = None) -> ExtractedCalls:
    """Parse a whole answer with one tool parser."""
    stream = parser.new_stream(tools)
    return collect_calls([*stream.feed(text), *stream.finish()])


def collect_calls(events: Iterable[ParserEvent]) -> ExtractedCalls:
    """Join the events of a whole answer."""
    calls: list[ParsedCall] = []
    texts: list[str] = []
    name, fragments = "", list[str]()
    for event in events:
        match event:
            case PlainText(text):
                texts.append(text)
            case CallName(name):
                fragments = []
            case CallArguments(fragment):
                fragments.append(fragment)
            case CallEnd():
                calls.append(ParsedCall(name, "".join(fragments)))
    return ExtractedCalls(tuple(calls), "".join(texts))


def extract_reasoning(parser: ReasoningParser, text: str, starts_open: bool = False) -> ExtractedReasoning:
    """Parse a whole output with one reasoning parser."""
    stream = parser.new_stream(starts_open)
    events = [*stream.feed(text), *stream.finish()]
    thoughts = [event.text for event in events if isinstance(event, ReasoningText)]
    answer = "".join(event.text for event in events if isinstance(event, PlainText))
    return ExtractedReasoning("".join(thoughts) if thoughts else None, answer)


class _AnyName(ToolCallParser):
    """A parser that accepts a call to any tool."""

    def __init__(self, inner: ToolCallParser) -> None:
        self.parser_id, self.markers = inner.parser_id, inner.markers
        self._inner = inner

    def new_stream(
        self, tools: Sequence[Tool] | None = None, release: Release = "validated"
    ) -> ToolCallStream:
        return self._inner.new_stream(None, release)


def parse_case(
    tool_parser_id: str,
    reasoning_parser_id: str,
    tools: list[dict[str, Any]] | None,
    starts_in_reasoning: bool,
    pieces: Sequence[str],
) -> dict[str, Any]:
    """Parse a foreign case, given and returned as plain data.

    Args:
        tools: Tools offered, each with `name` and `parameters`; None accepts any name.
    """
    calls = make_tool_parser(tool_parser_id)
    if tools is None:
        calls, tools = _AnyName(calls), [{"name": "any", "parameters": {}}]
    prepared = PreparedPrompt(
        tokens=(1,),
        stop_token_ids=frozenset(),
        max_tokens=1 << 20,
        tools=tuple(Tool(tool["name"], "", tool["parameters"]) for tool in tools),
        starts_in_reasoning=starts_in_reasoning,
    )
    processor = StreamProcessor(calls, make_reasoning_parser(reasoning_parser_id), prepared, lambda: "id")
    answer = parse_answer(processor, pieces)
    return {
        "content": answer.text,
        "reasoning": answer.reasoning,
        "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in answer.tool_calls],
    }
