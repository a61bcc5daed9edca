"""What parsers make of a whole answer, fed in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.engine.parsers.base import Release, ToolCallParser, ToolCallStream
from greenroom.engine.parsers.registry import thinking_parser, tool_parser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.messages import Tool, ToolCall
from greenroom.schemas.prepared_input import PreparedInput


@attrs.frozen
class ParsedAnswer:
    """A whole answer. `reasoning` is None where the model did not think."""

    text: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]


def parse_answer(processor: StreamProcessor, pieces: Sequence[str]) -> ParsedAnswer:
    """Feed the pieces to a new stream processor and put its deltas together."""
    texts, thoughts, calls = list[str](), list[str](), dict[int, ToolCall]()
    for delta in [*(delta for piece in pieces for delta in processor.feed(piece)), *processor.finish()]:
        match delta:
            case TextDelta():
                texts.append(delta.text)
            case ReasoningDelta():
                thoughts.append(delta.text)
            case ToolCallDelta():
                call = calls.get(delta.call) or ToolCall(delta.id or "", delta.name or "", "")
                calls[delta.call] = attrs.evolve(call, arguments=call.arguments + delta.arguments)
    return ParsedAnswer("".join(texts), "".join(thoughts) if thoughts else None, tuple(calls.values()))


class _AnyName(ToolCallParser):
    """A parser that accepts a call to any tool."""

    def __init__(self, inner: ToolCallParser) -> None:
        self.parser_id, self.markers = inner.parser_id, inner.markers
        self._inner = inner

    def new(self, tools: Sequence[Tool] | None = None, release: Release = "validated") -> ToolCallStream:
        return self._inner.new(None, release)


def parse_case(
    tool_parser_id: str,
    thinking_parser_id: str,
    tools: list[dict[str, Any]] | None,
    starts_in_thinking: bool,
    pieces: Sequence[str],
) -> dict[str, Any]:
    """Parse a case as collections of foreign cases state it, in plain data.

    Args:
        tools: What was offered, each with `name` and `parameters`; None accepts every name.
    """
    calls = tool_parser(tool_parser_id)
    if tools is None:
        calls, tools = _AnyName(calls), [{"name": "any", "parameters": {}}]
    prepared = PreparedInput(
        tokens=(1,),
        stop_token_ids=frozenset(),
        max_tokens=1 << 20,
        tools=tuple(Tool(tool["name"], "", tool["parameters"]) for tool in tools),
        starts_in_thinking=starts_in_thinking,
    )
    processor = StreamProcessor(calls, thinking_parser(thinking_parser_id), prepared, lambda: "id")
    answer = parse_answer(processor, pieces)
    return {
        "content": answer.text,
        "reasoning": answer.reasoning,
        "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in answer.tool_calls],
    }
