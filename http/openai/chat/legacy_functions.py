"""Legacy `functions` and `function_call`, replaced by `tools` in November 2023 but still sent by old clients.

They are read as tools without parallel calls; the response uses the legacy fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from greenroom.http.encoding.json_encoding import json_string
from greenroom.http.openai.chat.chat_stream import ChatStream
from greenroom.schemas.events.events import InferenceEvent, ToolCallDelta
from greenroom.schemas.messages.messages import ToolCall
from greenroom.schemas.openai.chat import ChatRequest, FunctionParam, MessageParam, ToolCallParam, ToolParam
from greenroom.schemas.openai.chat import Role as WireRole
from greenroom.schemas.problems import invalid, missing


def speaks_of_functions(wire: ChatRequest) -> bool:
    """Return whether the response uses the legacy fields."""
    return bool(wire.functions)


def with_tools(wire: ChatRequest) -> ChatRequest:
    """Return the request with legacy fields converted to tools.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    wire = attrs.evolve(wire, messages=tuple(_messages(wire.messages)))
    choice = _tool_choice(wire.function_call, wire.functions or ())
    if not wire.functions:
        if wire.function_call not in (None, "auto") and (wire.tools or wire.function_call != "none"):
            raise invalid(
                "`function_call` needs `functions`; beside `tools` send `tool_choice`.", "function_call"
            )
        return wire
    if wire.tools or wire.tool_choice is not None:
        detail = "`functions` cannot be combined with `tools` or `tool_choice`, which replace it."
        raise invalid(detail, "functions")
    return attrs.evolve(
        wire,
        tools=tuple(_tool(function, f"functions[{i}]") for i, function in enumerate(wire.functions)),
        tool_choice=choice,
        parallel_tool_calls=False,
    )


def _tool(function: FunctionParam, field: str) -> ToolParam:
    if not function.name:
        raise invalid(f"`{field}.name` is empty.", f"{field}.name")
    return ToolParam("function", function)


def _tool_choice(value: Any, functions: Sequence[FunctionParam]) -> Any:
    match value:
        case None | "auto" | "none":
            return value
        case {"name": str(name)} if name:
            if functions and all(function.name != name for function in functions):
                field = "function_call.name"
                raise invalid(f"`{field}` is {name[:80]!r}, which is not among the functions.", field)
            return {"type": "function", "function": {"name": name}}
        case dict():
            raise missing("function_call.name")
        case _:
            detail = "`function_call` must be 'none', 'auto', or an object with a name."
            raise invalid(detail, "function_call")


def _messages(messages: tuple[MessageParam, ...]) -> Iterator[MessageParam]:
    """Yield the messages with ids for legacy calls, and for their results the id of the call."""
    ids: dict[str, str] = {}
    for i, message in enumerate(messages):
        if message.role == "assistant" and (call := message.function_call) is not None:
            ids[call.name] = f"call_{i}"
            calls = (*(message.tool_calls or ()), ToolCallParam(ids[call.name], call))
            yield attrs.evolve(message, tool_calls=calls)
        elif message.role == "function":
            if message.name not in ids:
                field = f"messages[{i}].name"
                raise invalid(f"`{field}` names no function that was called before.", field)
            yield attrs.evolve(message, role=WireRole("tool"), tool_call_id=ids[message.name])
        else:
            yield message


def function_call(calls: tuple[ToolCall, ...]) -> dict[str, Any] | None:
    """Return the call of a complete response, if there is one."""
    return {"name": calls[0].name, "arguments": calls[0].arguments} if calls else None


class FunctionStream(ChatStream):
    """Formats a streamed response with its call as a `function_call`."""

    def event(self, event: InferenceEvent) -> bytes:
        """Return the chunks for an event."""
        if not isinstance(event, ToolCallDelta):
            return super().event(event)
        if event.call:
            return b""
        name = b"" if event.name is None else b'"name":%b,' % json_string(event.name)
        arguments = json_string(event.arguments)
        call = b'{"content":null,"function_call":{%b"arguments":%b}}' % (name, arguments)
        return self._chunk(call, event.index)

    def _last_chunk(self, index: int, reason: bytes, stop: bytes) -> bytes:
        reason = b'"function_call"' if reason == b'"tool_calls"' else reason
        return super()._last_chunk(index, reason, stop)
