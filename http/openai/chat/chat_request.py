"""Parsing of `POST /v1/chat/completions` into a protocol-independent request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenroom.http.answering.explanation_body import parse_explained
from greenroom.http.answering.requests.request_parameters import (
    parse_model_key,
    parse_parameters,
    parse_priority,
    parse_truncation,
    parse_verbosity,
    refuse_unsupported,
)
from greenroom.http.answering.tools.call_arguments import ArgumentCheck
from greenroom.http.answering.tools.custom_tools import check_names, custom_call, parse_custom_tool
from greenroom.http.answering.tools.tool_choice import allows_parallel_calls
from greenroom.http.media.media_reader import MediaReader
from greenroom.http.openai.chat.legacy_functions import with_tools
from greenroom.http.openai.chat.message_content import content_parts, reasoning_of
from greenroom.http.openai.chat.tool_choice import parse_tool_choice
from greenroom.http.openai.text.parameters import CHAT_PARAMETERS, without_no_limit
from greenroom.http.openai.text.response_format import parse_response_format
from greenroom.schemas.messages.messages import JsonObject, Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.messages import Role as NeutralRole
from greenroom.schemas.messages.reasoning import EFFORTS, Effort, ReasoningSettings, effort_named
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.openai.chat import ChatRequest, MessageParam, PredictionParam, ToolCallParam, ToolParam
from greenroom.schemas.problems import ProblemError, invalid, missing

_NO_EFFORT = "none"


def parse_chat_request(
    wire: ChatRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest:
    """Parse a chat request into a protocol-independent one.

    Args:
        wire: Wire type that `body` was structured into.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not wire.messages:
        raise invalid("`messages` must hold at least one message.", "messages")
    # A continued final message takes no generation prompt.
    begun = not wire.continue_final_message
    refuse_unsupported(body, {"add_generation_prompt": (begun,)})
    wire = with_tools(wire)
    _check_arguments(wire.messages)
    media = MediaReader()
    tools = tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(wire.tools or ()))
    check_names(tools, (f"tools[{i}].{tool.type}.name" for i, tool in enumerate(wire.tools or ())))
    choice = parse_tool_choice(wire.tool_choice)
    chat = ChatInput(
        messages=tuple(_message(message, media, f"messages[{i}]") for i, message in enumerate(wire.messages)),
        tools=tools,
        tool_choice=choice,
        template_options=wire.chat_template_kwargs or {},
        continue_final_message=wire.continue_final_message or False,
        parallel_tool_calls=allows_parallel_calls(wire.parallel_tool_calls, choice),
        thinking=_thinking(wire),
        verbosity=parse_verbosity(wire.verbosity),
        prediction=_predicted(wire.prediction),
    )
    parameters, key = _parameters(body), parse_model_key(wire.model)
    response_format = parse_response_format(body)
    return InferenceRequest(
        request_id,
        key,
        chat,
        parameters,
        client,
        response_format=response_format,
        overflow=parse_truncation(wire.truncation),
        priority=parse_priority(body),
        explained=parse_explained(body),
    )


def _parameters(body: JsonObject) -> dict[str, Any]:
    parameters = parse_parameters(without_no_limit(body), CHAT_PARAMETERS)
    if parameters.get("top_logprobs") and not parameters.get("logprobs"):
        raise invalid("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
    return parameters


def _predicted(wire: PredictionParam | None) -> str:
    """Return the text of a prediction, none of whose tokens are used."""
    if wire is None:
        return ""
    if wire.type != "content" or wire.content is None:
        raise invalid("`prediction` must have the type 'content', and the text as `content`.", "prediction")
    return "".join(part.text or "" for part in wire.content.parts)


def _thinking(wire: ChatRequest) -> ReasoningSettings:
    """Return the reasoning settings; the more explicit field wins."""
    enabled, effort = _effort(wire)
    preserved = None
    if wire.thinking is not None:
        enabled = _thinking_enabled(wire.thinking)
        preserved = _reasoning_preserved(wire.thinking)
    if wire.enable_thinking is not None:
        enabled = wire.enable_thinking
    return ReasoningSettings(enabled, effort, preserved)


def _effort(wire: ChatRequest) -> tuple[bool | None, Effort | None]:
    value, field = wire.reasoning_effort, "reasoning_effort"
    if value is None and wire.reasoning is not None:
        value, field = wire.reasoning.get("effort"), "reasoning.effort"
    if value is None:
        return None, None
    if value == _NO_EFFORT:
        return False, None
    if (effort := effort_named(value)) is not None:
        return True, effort
    known = ", ".join(map(repr, (_NO_EFFORT, *EFFORTS)))
    raise invalid(f"`{field}` must be one of {known}.", field)


def _thinking_enabled(thinking: dict[str, Any]) -> bool | None:
    kind = thinking.get("type")
    if kind not in ("enabled", "adaptive", "disabled"):
        raise invalid("`thinking.type` must be 'enabled', 'adaptive' or 'disabled'.", "thinking.type")
    return bool(kind != "disabled")


def _reasoning_preserved(thinking: dict[str, Any]) -> bool | None:
    """Return whether earlier turns keep their reasoning, from the field that Z.ai's clients send."""
    cleared = thinking.get("clear_thinking")
    if cleared is not None and not isinstance(cleared, bool):
        raise invalid("`thinking.clear_thinking` must be true or false.", "thinking.clear_thinking")
    return None if cleared is None else not cleared


def _message(message: MessageParam, media: MediaReader, field: str) -> Message:
    role: NeutralRole = "system" if message.role == "developer" else message.role  # type: ignore[assignment]
    from_assistant = role == "assistant"
    content = content_parts(message.content, role, media, f"{field}.content")
    if message.content is None and role in ("system", "user"):
        raise missing(f"{field}.content")
    if role == "tool" and not message.tool_call_id:
        name = f"{field}.tool_call_id"
        raise invalid(f"`{name}` is required in a tool message.", name, "missing_required_parameter")
    if from_assistant and not content and message.refusal:
        content = (TextPart(message.refusal),)
    return Message(
        role=role,
        content=content,
        reasoning=reasoning_of(message) if from_assistant else None,
        tool_calls=_tool_calls(message, field) if from_assistant else (),
        tool_call_id=message.tool_call_id if role == "tool" else None,
        name=message.name,
    )


def _tool_calls(message: MessageParam, field: str) -> tuple[ToolCall, ...]:
    calls = message.tool_calls or ()
    return tuple(_tool_call(call, f"{field}.tool_calls[{i}]") for i, call in enumerate(calls))


def _tool_call(call: ToolCallParam, field: str) -> ToolCall:
    if call.type == "custom":
        if call.custom is None:
            raise missing(f"{field}.custom")
        return custom_call(call.id, call.custom.name, call.custom.input)
    if call.type != "function":
        raise _unknown_kind(f"{field}.type")
    if call.function is None:
        raise missing(f"{field}.function")
    return ToolCall(call.id, call.function.name, call.function.arguments or "{}")


def _check_arguments(messages: Sequence[MessageParam]) -> None:
    arguments = ArgumentCheck()
    for i, message in enumerate(messages):
        for j, call in enumerate(message.tool_calls or ()):
            if call.function is not None:
                field = f"messages[{i}].tool_calls[{j}].function.arguments"
                arguments.check(call.function.arguments, field)


def _tool(tool: ToolParam, field: str) -> Tool:
    if tool.type == "custom":
        return parse_custom_tool(tool.custom, f"{field}.custom")
    if tool.type != "function":
        raise _unknown_kind(f"{field}.type")
    if tool.function is None:
        raise missing(f"{field}.function")
    if not tool.function.name:
        raise invalid(f"`{field}.function.name` is empty.", f"{field}.function.name")
    return Tool(
        name=tool.function.name,
        description=tool.function.description or "",
        parameters=tool.function.parameters or {},
        strict=tool.function.strict or False,
    )


def _unknown_kind(field: str) -> ProblemError:
    return invalid(f"`{field}` must be 'function' or 'custom'.", field, "unsupported_parameter")
