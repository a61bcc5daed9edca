"""Parsing of `POST /v1/messages` and `count_tokens` into a protocol-independent request."""

from __future__ import annotations

from greenroom.http.answering.explanation_body import parse_explained
from greenroom.http.answering.requests.request_parameters import (
    parse_model_key,
    parse_parameters,
    parse_priority,
)
from greenroom.http.answering.tools.tool_choice import allows_parallel_calls
from greenroom.http.anthropic.conversation.conversation import Conversation
from greenroom.http.anthropic.conversation.system_prompt import parse_system
from greenroom.http.anthropic.conversation.tools import check_tools, parse_tool_choice, parse_tools
from greenroom.http.anthropic.requests.parameters import MESSAGE_PARAMETERS
from greenroom.http.anthropic.requests.thinking import check_budget, hides_reasoning, parse_thinking
from greenroom.schemas.anthropic.messages import FormatParam, PromptRequest
from greenroom.schemas.messages.messages import JsonObject, Message, ToolChoice
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.messages.response_format import JsonSchemaFormat, ResponseFormat
from greenroom.schemas.problems import invalid, missing


def parse_messages_request(
    wire: PromptRequest, body: JsonObject, request_id: str, client: str = "", betas: str = ""
) -> InferenceRequest:
    """Parse a messages request into a protocol-independent one; its prompt depends on `wire` only.

    Args:
        wire: Wire type that `body` was structured into.
        client: See `InferenceRequest`.
        betas: Header `anthropic-beta`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not wire.messages:
        raise invalid("`messages` must hold at least one message.", "messages")
    parameters = parse_parameters(body, MESSAGE_PARAMETERS)
    check_budget(wire, parameters.get("thinking_budget"), parameters.get("max_tokens"), betas)
    hides_reasoning(wire)
    check_tools(wire.tools or (), wire.tool_choice)
    shelf = parse_tools(wire.tools or ())
    messages = (*parse_system(wire.system), *Conversation(shelf).parse(wire.messages))
    choice = parse_tool_choice(wire.tool_choice, shelf)
    response_format = _response_format(wire)
    messages, continues = _prefill(messages, choice, response_format, len(wire.messages) - 1)
    chat = ChatInput(
        messages,
        shelf.tools(),
        choice,
        continue_final_message=continues,
        parallel_tool_calls=allows_parallel_calls(_wants_parallel_calls(wire), choice),
        thinking=parse_thinking(wire, messages),
    )
    key = parse_model_key(wire.model)
    return InferenceRequest(
        request_id,
        key,
        chat,
        parameters,
        client,
        response_format=response_format,
        priority=parse_priority(body),
        explained=parse_explained(body),
    )


def _wants_parallel_calls(wire: PromptRequest) -> bool | None:
    disabled = wire.tool_choice and wire.tool_choice.disable_parallel_tool_use
    return None if disabled is None else not disabled


def _prefill(
    messages: tuple[Message, ...], choice: ToolChoice, response_format: ResponseFormat | None, last: int
) -> tuple[tuple[Message, ...], bool]:
    """Return the messages, and whether the last one is an assistant message to continue."""
    final = messages[-1] if messages else None
    if final is None or final.role != "assistant":
        return messages, False
    field = f"messages[{last}]"
    if final.tool_calls:
        raise invalid(f"`{field}` ends with a `tool_use` block: its result has to follow.", field)
    if not final.text.strip():
        if final.reasoning:
            raise invalid(f"`{field}` ends with reasoning, which cannot be continued.", field)
        return messages[:-1], False
    if response_format is not None or choice.mode in ("required", "named"):
        detail = (
            f"`{field}` is the start of an answer, which `output_config.format` and a forced tool do not "
            "allow."
        )
        raise invalid(detail, field, "unsupported_parameter")
    return messages, True


def _response_format(wire: PromptRequest) -> ResponseFormat | None:
    new = wire.output_config.format if wire.output_config else None
    if new is not None and wire.output_format is not None:
        raise invalid("`output_config.format` and `output_format` cannot be combined.", "output_format")
    field = "output_config.format" if new is not None else "output_format"
    asked: FormatParam | None = new or wire.output_format
    if asked is None:
        return None
    if asked.type != "json_schema":
        raise invalid(f"`{field}.type` must be 'json_schema'.", f"{field}.type")
    if asked.schema is None:
        raise missing(f"{field}.schema")
    return JsonSchemaFormat(asked.schema, param=f"{field}.schema")
