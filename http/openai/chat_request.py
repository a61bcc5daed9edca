"""From the wire to the neutral request: `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Any

from greenroom.schemas.generation import check
from greenroom.schemas.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages import Role as NeutralRole
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.openai.chat import ChatRequest, Content, MessageParam, ToolParam
from greenroom.schemas.openai.completions import CompletionRequest
from greenroom.schemas.openai.structured_output import wanted_format
from greenroom.schemas.openai.tool_choice import wanted_choice
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.requests import ChatInput, GenerationRequest

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
PARAMETERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "xtc_probability",
    "xtc_threshold",
)
"""Generation parameters that have the same name on the wire and here."""


def chat_request(wire: ChatRequest, request_id: str, client: str = "") -> GenerationRequest:
    """The request of a chat client in neutral words.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not wire.messages:
        raise invalid("`messages` must hold at least one message.", "messages")
    chat = ChatInput(
        messages=tuple(_message(message, f"messages[{i}]") for i, message in enumerate(wire.messages)),
        tools=tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(wire.tools or ())),
        tool_choice=wanted_choice(wire.tool_choice),
        template_options=template_options(wire),
        continue_final_message=wire.continue_final_message or False,
        parallel_tool_calls=wire.parallel_tool_calls is not False,
    )
    overrides = generation_overrides(wire)
    if wire.max_completion_tokens is not None:
        field = "max_completion_tokens"
        overrides["max_tokens"] = check("max_tokens", wire.max_completion_tokens, field)
    overrides |= thinking_budget(wire) | _logprobs(wire)
    key = ModelKey(model_name(wire.model))
    wanted = wanted_format(wire)
    return GenerationRequest(request_id, key, chat, overrides, client, response_format=wanted)


def generation_overrides(wire: ChatRequest | CompletionRequest) -> dict[str, Any]:
    """The generation parameters that the client has set."""
    return {
        name: check(name, getattr(wire, name))
        for name in (*PARAMETERS, "max_tokens")
        if getattr(wire, name) is not None
    }


def _logprobs(wire: ChatRequest) -> dict[str, Any]:
    wanted = {name: getattr(wire, name) for name in ("logprobs", "top_logprobs")}
    checked = {name: check(name, value) for name, value in wanted.items() if value is not None}
    if checked.get("top_logprobs") and not checked.get("logprobs"):
        raise invalid("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
    return checked


def model_name(model: str) -> str:
    """The name as it was sent, unless there is none.

    Raises:
        ProblemError: 400.
    """
    if not model.strip():
        raise invalid("`model` is empty: name a model, or 'default' for the first.", "model")
    return model


def template_options(wire: ChatRequest) -> dict[str, Any]:
    """Whether and how much to think, in the templates' words; what is more explicit wins.

    Raises:
        ProblemError: 400 for an effort or a kind of thinking that does not exist.
    """
    options: dict[str, Any] = {}
    effort = wire.reasoning_effort
    field = "reasoning_effort"
    if effort is None and wire.reasoning is not None:
        effort, field = wire.reasoning.get("effort"), "reasoning.effort"
    if effort is not None:
        if effort not in EFFORTS:
            raise invalid(f"`{field}` must be one of {', '.join(map(repr, EFFORTS))}.", field)
        options["enable_thinking"] = effort != "none"
        if effort != "none":
            options["reasoning_effort"] = effort
    if wire.thinking is not None:
        options["enable_thinking"] = _thinking(wire.thinking)
    if wire.enable_thinking is not None:
        options["enable_thinking"] = wire.enable_thinking
    return options | (wire.chat_template_kwargs or {})


def thinking_budget(wire: ChatRequest) -> dict[str, Any]:
    """How many tokens a thought may take, by any of the names that clients have for it.

    Raises:
        ProblemError: 400 for a budget out of range.
    """
    asked = {
        "thinking.budget_tokens": (wire.thinking or {}).get("budget_tokens"),
        "reasoning.max_tokens": (wire.reasoning or {}).get("max_tokens"),
        "reasoning_max_tokens": wire.reasoning_max_tokens,
        "thinking_budget": wire.thinking_budget,
    }
    budgets = [check("thinking_budget", value, name) for name, value in asked.items() if value is not None]
    return {"thinking_budget": budgets[-1]} if budgets else {}


def _thinking(thinking: dict[str, Any]) -> bool:
    kind = thinking.get("type")
    if kind not in ("enabled", "adaptive", "disabled"):
        raise invalid("`thinking.type` must be 'enabled', 'adaptive' or 'disabled'.", "thinking.type")
    return bool(kind != "disabled")


def _message(message: MessageParam, field: str) -> Message:
    role: NeutralRole = "system" if message.role == "developer" else message.role  # type: ignore[assignment]
    speaks = role == "assistant"
    content = _texts(message.content, f"{field}.content")
    if message.content is None and role in ("system", "user"):
        raise invalid(f"`{field}.content` is required.", f"{field}.content", "missing_required_parameter")
    if role == "tool" and not message.tool_call_id:
        name = f"{field}.tool_call_id"
        raise invalid(f"`{name}` is required in a tool message.", name, "missing_required_parameter")
    if speaks and not content and message.refusal:
        content = (TextPart(message.refusal),)
    thought = message.reasoning_content or message.reasoning
    return Message(
        role=role,
        content=content,
        reasoning=thought if speaks and isinstance(thought, str) else None,
        tool_calls=_calls(message, field) if speaks else (),
        tool_call_id=message.tool_call_id if role == "tool" else None,
        name=message.name,
    )


def _texts(content: Content | None, field: str) -> tuple[TextPart, ...]:
    texts = []
    for i, part in enumerate(content.parts if content else ()):
        name = f"{field}[{i}]"
        if part.type not in ("text", "refusal"):
            detail = f"`{name}` is {part.type!r}, but this server's models take text only."
            raise invalid(detail, name, "unsupported_content")
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            name = f"{name}.{part.type}"
            raise invalid(f"`{name}` is required.", name, "missing_required_parameter")
        texts.append(TextPart(text))
    return tuple(texts)


def _calls(message: MessageParam, field: str) -> tuple[ToolCall, ...]:
    for i, call in enumerate(message.tool_calls or ()):
        if call.type != "function":
            raise _only_functions(f"{field}.tool_calls[{i}].type")
    return tuple(
        ToolCall(call.id, call.function.name, call.function.arguments or "{}")
        for call in message.tool_calls or ()
    )


def _tool(tool: ToolParam, field: str) -> Tool:
    if tool.type != "function":
        raise _only_functions(f"{field}.type")
    if tool.function is None:
        name = f"{field}.function"
        raise invalid(f"`{name}` is required.", name, "missing_required_parameter")
    if not tool.function.name:
        raise invalid(f"`{field}.function.name` is empty.", f"{field}.function.name")
    return Tool(
        name=tool.function.name,
        description=tool.function.description or "",
        parameters=tool.function.parameters or {},
        strict=tool.function.strict or False,
    )


def _only_functions(field: str) -> ProblemError:
    return invalid(f"`{field}` must be 'function'.", field, "unsupported_parameter")
