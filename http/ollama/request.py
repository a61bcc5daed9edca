"""Parsing of `POST /api/chat` and `POST /api/generate` into a protocol-independent request."""

from __future__ import annotations

import json
from typing import Any

import attrs

from greenroom.http.answering.explanation_body import parse_explained
from greenroom.http.answering.requests.request_parameters import parse_model_key, parse_priority
from greenroom.http.media.media_reader import MediaReader
from greenroom.http.ollama.keep_alive import parse_keep_alive
from greenroom.http.ollama.options import parse_options
from greenroom.schemas.messages.messages import ImagePart, JsonObject, Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.messages import Role as NeutralRole
from greenroom.schemas.messages.reasoning import EFFORTS, ReasoningSettings, effort_named
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, Overflow, RawInput, RequestInput
from greenroom.schemas.messages.response_format import JsonObjectFormat, JsonSchemaFormat, ResponseFormat
from greenroom.schemas.ollama.requests import ChatRequest, GenerateRequest, MessageParam, ToolParam
from greenroom.schemas.problems import invalid

Images = tuple[ImagePart, ...]


def parse_chat(
    wire: ChatRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse a chat request; return None if it only loads or unloads the model.

    Args:
        wire: Wire type that `body` was structured into.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not wire.messages:
        return None
    chat = ChatInput(
        messages=tuple(_messages(wire.messages)),
        tools=tuple(_tool(tool, f"tools[{i}].function") for i, tool in enumerate(wire.tools or ())),
        thinking=_thinking(wire.think),
    )
    # Ollama drops old messages by default; a single message is never dropped.
    overflow: Overflow = "refuse" if wire.truncate is False else "drop_oldest"
    return attrs.evolve(_request(wire, body, chat, request_id, client), overflow=overflow)


def parse_generate(
    wire: GenerateRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse a completion request; return None if it only loads or unloads the model.

    Args:
        wire: Wire type that `body` was structured into.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if not (wire.prompt or wire.suffix or wire.images):
        return None
    prompt = wire.prompt or ""
    if wire.raw or wire.suffix:
        chat_only = {"images": wire.images, "system": wire.system, "think": _thinking(wire.think).enabled}
        for name in (name for name, value in chat_only.items() if value):
            detail = f"`{name}` cannot be combined with `raw` or `suffix`, which use no chat template."
            raise invalid(detail, name)
        return _request(wire, body, RawInput(prompt, wire.suffix or ""), request_id, client)
    system = (Message("system", (TextPart(wire.system),)),) if wire.system else ()
    images = _images(wire.images, MediaReader(), "images")
    messages = (*system, Message("user", (*images, TextPart(prompt))))
    chat = ChatInput(messages, thinking=_thinking(wire.think))
    return _request(wire, body, chat, request_id, client)


def _request(
    wire: ChatRequest | GenerateRequest, body: JsonObject, asked: RequestInput, request_id: str, client: str
) -> InferenceRequest:
    parameters, key = parse_options(body), parse_model_key(wire.model)
    return InferenceRequest(
        request_id,
        key,
        asked,
        parameters,
        client,
        response_format=_format(wire.format),
        keep_alive=parse_keep_alive(wire.keep_alive),
        priority=parse_priority(body),
        explained=parse_explained(body),
    )


def _thinking(think: Any) -> ReasoningSettings:
    if think is None or isinstance(think, bool):
        return ReasoningSettings(enabled=think)
    if (effort := effort_named(think)) is not None:
        return ReasoningSettings(enabled=True, effort=effort)
    raise invalid(f"`think` must be true, false or one of {', '.join(map(repr, EFFORTS))}.", "think")


def _format(value: Any) -> ResponseFormat | None:
    match value:
        case None | "":
            return None
        case "json":
            return JsonObjectFormat(param="format")
        case dict():
            return JsonSchemaFormat(value, param="format")
        case _:
            raise invalid("`format` must be 'json' or a JSON schema.", "format")


def _messages(messages: tuple[MessageParam, ...]) -> list[Message]:
    """Return the messages; calls without ids get new ones, and results without ids match calls in order."""
    converted: list[Message] = []
    made: set[str] = set()
    unanswered: list[ToolCall] = []
    media = MediaReader()
    for i, message in enumerate(messages):
        images = _images(message.images, media, f"messages[{i}].images", message.role)
        if message.role == "tool":
            converted.append(_result(message, _answered(message, made, unanswered), images))
            continue
        calls = _calls(message, i) if message.role == "assistant" else ()
        if message.role == "assistant":
            made.update(call.id for call in calls)
            unanswered = list(calls)
        converted.append(_message(message, calls, images))
    return converted


def _calls(message: MessageParam, index: int) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            call.id or f"call_{index}_{j}",
            call.function.name,
            json.dumps(call.function.arguments or {}, ensure_ascii=False),
        )
        for j, call in enumerate(message.tool_calls or ())
    )


def _answered(message: MessageParam, made: set[str], unanswered: list[ToolCall]) -> str | None:
    """Return the id of the call that a result belongs to, matched by id or by name; None if there is none."""
    if message.tool_call_id in made:
        return message.tool_call_id
    found = next((call for call in unanswered if message.tool_name in (None, "", call.name)), None)
    if found is None:
        return None
    unanswered.remove(found)
    return found.id


def _result(message: MessageParam, call_id: str | None, images: Images) -> Message:
    """Return a tool's result; without its call, which the client dropped, return user text as Ollama does."""
    if call_id is not None:
        return attrs.evolve(_message(message, (), images), tool_call_id=call_id, name=message.tool_name)
    of = f" of {message.tool_name}" if message.tool_name else ""
    return Message("user", (TextPart(f"Result{of}:\n{message.content or ''}"), *images))


def _message(message: MessageParam, calls: tuple[ToolCall, ...], images: Images) -> Message:
    role: NeutralRole = message.role  # type: ignore[assignment]
    text = (TextPart(message.content),) if message.content else ()
    return Message(
        role=role,
        # Ollama puts a message's images before its text.
        content=(*images, *text),
        reasoning=message.thinking or None if role == "assistant" else None,
        tool_calls=calls,
    )


def _tool(tool: ToolParam, field: str) -> Tool:
    if not tool.function.name:
        raise invalid(f"`{field}.name` is empty.", f"{field}.name")
    return Tool(tool.function.name, tool.function.description or "", tool.function.parameters or {})


def _images(images: tuple[str, ...] | None, media: MediaReader, field: str, role: str = "user") -> Images:
    if images and role not in ("user", "tool"):
        detail = f"`{field}` holds images, but only messages of users and tools may."
        raise invalid(detail, field, "unsupported_content")
    return tuple(media.encoded_image(image, f"{field}[{i}]") for i, image in enumerate(images or ()))
