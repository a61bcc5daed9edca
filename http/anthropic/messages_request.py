"""Parsing of `POST /v1/messages` and `count_tokens` into a protocol-independent request."""

from __future__ import annotations

from greenroom.http.answering.request_parameters import (
    NeutralValues,
    ParameterTable,
    parse_extensions,
    parse_model_key,
    parse_parameters,
)
from greenroom.http.answering.tools import allows_parallel_calls
from greenroom.http.anthropic.conversation import (
    Conversation,
    check_tools,
    parse_system,
    parse_tool_choice,
    parse_tools,
)
from greenroom.schemas.messages.messages import (
    EFFORTS,
    Effort,
    JsonObject,
    Message,
    ReasoningSettings,
    ToolChoice,
    effort_named,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, JsonSchemaFormat, ResponseFormat
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.wire.anthropic import FormatParam, PromptRequest


def parse_messages_request(
    wire: PromptRequest, body: JsonObject, request_id: str, client: str = "", betas: str = ""
) -> InferenceRequest:
    """Parse a messages request into a protocol-independent one; its prompt depends on `wire` only. `betas`:
    header `anthropic-beta`. Raises ProblemError: 400 that names the offending field.
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
        **parse_extensions(body),
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


# Names of generation parameters in Anthropic's endpoints.
#
# Generation parameters are listed in these tables, all others in the wire types. Parameters that do not
# affect the response are not listed: `metadata`, and `cache_control`, since every prompt is cached.

MESSAGE_PARAMETERS: ParameterTable = {
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "thinking.budget_tokens": "thinking_budget",
}
"""Parameters of `POST /v1/messages`.

API version 2026-10-21 has no sampling parameters, but here every version accepts them.
"""

UNSUPPORTED: NeutralValues = {
    "billing_policy": (),
    "compaction": (),
    "container": (),
    "fallbacks": ([],),
    "inference_geo": ("global",),
    "output_config.task_budget": (),
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
    "thread": (),
}


ANTHROPIC_EFFORTS = EFFORTS[1:]  # Effort levels of Anthropic's API: all but `minimal`
LEAST_BUDGET = 1_024  # Smallest reasoning budget in tokens that Anthropic's API accepts
INTERLEAVED = "interleaved-thinking"
"""Prefix of the beta under which a budget may exceed `max_tokens`, since it covers several responses."""


def parse_thinking(wire: PromptRequest, messages: tuple[Message, ...]) -> ReasoningSettings:
    """Return the reasoning settings.

    Reasoning is off by default: clients that expect it ask for it.

    Raises:
        ProblemError: 400 that names the field.
    """
    effort, preserved = _effort(wire), _preserved(wire)
    match wire.thinking.type if wire.thinking else "disabled":
        case "enabled" | "adaptive":
            return ReasoningSettings(True, effort, preserved)
        case "disabled":
            return ReasoningSettings(False, None, preserved)
        case "between_tools":
            thinks = bool(messages) and messages[-1].role == "tool"
            return ReasoningSettings(thinks, effort if thinks else None, preserved)
    detail = "`thinking.type` must be 'enabled', 'adaptive', 'between_tools' or 'disabled'."
    raise invalid(detail, "thinking.type")


def _effort(wire: PromptRequest) -> Effort | None:
    asked = wire.output_config.effort if wire.output_config else None
    effort = effort_named(asked)
    if asked is None or effort in ANTHROPIC_EFFORTS:
        return effort
    field = "output_config.effort"
    raise invalid(f"`{field}` must be one of {', '.join(map(repr, ANTHROPIC_EFFORTS))}.", field)


def _preserved(wire: PromptRequest) -> bool | None:
    """Return whether earlier turns keep their reasoning, from the only context edit that is supported."""
    preserved = None
    edits = wire.context_management.edits if wire.context_management else None
    for index, edit in enumerate(edits or ()):
        match edit:
            case {"type": "clear_thinking_20251015", "keep": "all" | {"type": "all"}}:
                preserved = True
            case {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}:
                preserved = False
            case {"type": "clear_thinking_20251015"} if edit.get("keep") is None:
                preserved = False
            case _:
                field = f"context_management.edits[{index}]"
                known = "'clear_thinking_20251015' that keeps 'all' or one turn"
                detail = f"`{field}` is not supported; only {known} is accepted."
                raise invalid(detail, field, "unsupported_parameter")
    return preserved


def hides_reasoning(wire: PromptRequest) -> bool:
    """Return whether the client wants reasoning blocks without their text. Raises ProblemError: 400 that
    names the field.
    """
    display = wire.thinking.display if wire.thinking else None
    if display not in (None, "summarized", "omitted"):
        raise invalid("`thinking.display` must be 'summarized' or 'omitted'.", "thinking.display")
    return display == "omitted"


def check_budget(wire: PromptRequest, budget: int | None, max_tokens: int | None, betas: str) -> None:
    """Refuse a budget that Anthropic's API would refuse.

    Args:
        budget: Reasoning budget in tokens, if there is one.
        max_tokens: Limit on reasoning and response together, in tokens; None if only the prompt is counted.
        betas: Header `anthropic-beta`.

    Raises:
        ProblemError: 400 that names the field.
    """
    field = "thinking.budget_tokens"
    if wire.thinking is None or wire.thinking.type != "enabled":
        return
    if budget is None:
        raise missing(field)
    if budget < LEAST_BUDGET:
        raise invalid(f"`{field}` is {budget}, but must be at least {LEAST_BUDGET}.", field)
    if max_tokens is not None and budget >= max_tokens and INTERLEAVED not in betas:
        raise invalid(f"`{field}` is {budget}, but must be less than `max_tokens` ({max_tokens}).", field)
