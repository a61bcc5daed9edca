"""Parsing of `POST /api/chat` and `POST /api/generate` into a protocol-independent request."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import attrs

from greenroom.actors.core.ref import Ref, ask_actor
from greenroom.actors.requests.generation import acquire_first
from greenroom.http.answering.current_request import (
    caller,
    describe_models,
    for_caller,
    request_client,
    request_id,
)
from greenroom.http.answering.request_parameters import (
    NeutralValues,
    ParameterTable,
    parse_extensions,
    parse_model_key,
    parse_parameters,
    refuse_unsupported,
)
from greenroom.http.media.media_reader import MediaReader
from greenroom.schemas.messages.messages import (
    EFFORTS,
    ImagePart,
    JsonObject,
    Message,
    ReasoningSettings,
    TextPart,
    Tool,
    ToolCall,
    effort_named,
)
from greenroom.schemas.messages.messages import Role as NeutralRole
from greenroom.schemas.messages.requests import (
    ChatInput,
    InferenceRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    KeepAlive,
    Overflow,
    RawInput,
    RequestInput,
    ResponseFormat,
)
from greenroom.schemas.problems import invalid
from greenroom.schemas.protocols.pool_protocol import Acquire, PoolMessage, Unloading, UnloadModel
from greenroom.schemas.wire.ollama import ChatRequest, GenerateRequest, MessageParam, ToolParam

Images = tuple[ImagePart, ...]


def parse_chat(
    wire: ChatRequest, body: JsonObject, request_id: str, client: str = ""
) -> InferenceRequest | None:
    """Parse a chat request; return None if it only loads or unloads the model. Raises ProblemError: 400 that
    names the offending field.
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
    """Parse a completion request; return None if it only loads or unloads the model. Raises ProblemError: 400
    that names the offending field.
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
        **parse_extensions(body),
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
    ident, name = message.tool_call_id, message.tool_name
    if ident not in made:
        ident = next((call.id for call in unanswered if name in (None, "", call.name)), None)
    unanswered[:] = [call for call in unanswered if call.id != ident]
    return ident


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


# Names of Ollama's options.
#
# Options without an effect here are accepted: a model always has its whole context (`num_ctx`, `num_keep`),
# and its execution is not up to clients (`num_gpu`, `num_thread`, …).

PARAMETERS: ParameterTable = {
    **{
        f"options.{name}": name
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "stop",
            "seed",
        )
    },
    "options.repeat_penalty": "repetition_penalty",
    "options.num_predict": "max_tokens",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
}

_HOTTEST_ELSEWHERE = 2.0
_HOTTEST = 100.0
"""Highest temperature: Ollama has no limit, and beyond this one all tokens are about equally likely."""

UNSUPPORTED: NeutralValues = {"template": ("",), "context": ([],), "shift": (False,)}
"""Unsupported body fields. The context does not shift during generation: the response ends with `length`."""

UNSUPPORTED_IN_GENERATE: NeutralValues = {**UNSUPPORTED, "truncate": (False,)}
"""Unsupported body fields of `/api/generate`: a single prompt has no messages to drop."""

UNSUPPORTED_OPTIONS: NeutralValues = {
    "options.typical_p": (1, 0),
    "options.mirostat": (0,),
    "options.tfs_z": (1,),
}


def parse_options(body: JsonObject) -> dict[str, Any]:
    """Return the generation parameters of a body whose `options` are an object or null. Raises ProblemError:
    400 that names the option.
    """
    options = dict(body.get("options") or {})
    refuse_unsupported(body, UNSUPPORTED_OPTIONS)
    for name, least in (("num_predict", 1), ("seed", 0)):
        # A lower value means no limit, or no seed.
        if _is_number(options.get(name)) and options[name] < least:
            del options[name]
    if _is_number(options.get("repeat_last_n")) and options["repeat_last_n"] == 0:
        options.pop("repeat_penalty", None)
    hotter: dict[str, Any] = {}
    if _is_number(options.get("temperature")) and options["temperature"] > _HOTTEST_ELSEWHERE:
        hotter["temperature"] = min(float(options.pop("temperature")), _HOTTEST)
    return parse_parameters({**body, "options": options}, PARAMETERS) | hotter


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Durations of Ollama's `keep_alive`: how long a model stays in memory after a request.
#
# Source: api/types.go of Ollama (`Duration.UnmarshalJSON`) and Go's `time.ParseDuration`.

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_DIGITS = 64


def parse_keep_alive(value: Any) -> KeepAlive | None:
    """Return the wish of a request; None if it has none.

    A number counts seconds, a text has units (`5m`, `1h30m`); negative ones mean no limit.

    Raises:
        ProblemError: 400 that names the field.
    """
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None or math.isnan(seconds):
        detail = "`keep_alive` must be a number of seconds, or a duration such as '5m', '0' or '-1s'."
        raise invalid(detail, "keep_alive")
    return KeepAlive(None if seconds < 0 or math.isinf(seconds) else seconds)


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -1.0
    if not isinstance(value, str) or len(value) > _MAX_DIGITS:
        return None
    text = value.removeprefix("+")
    sign, text = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)


async def load_or_unload(pool: Ref[PoolMessage], name: str, keep_alive: Any) -> str:
    """Load a model, or begin to unload it if it is to be kept for no time; return Ollama's reason of the end.

    Raises:
        ProblemError: 400 that names the field, 404, 409 if the operator has pinned the model or others use
            it, or the failure of the load.
    """
    key, wish = parse_model_key(name), parse_keep_alive(keep_alive)
    if wish is not None and wish.seconds == 0:
        await describe_models(pool, name)  # nobody unloads what its key may not use
        client = None if caller().admin else request_client()
        message = UnloadModel(
            key, spares_pinned=True, keeps_prefixes=True, client=client, reason="keep_alive"
        )
        await ask_actor(pool, message, Unloading)
        return "unload"
    asked = for_caller(InferenceRequest(request_id(), key, RawInput(""), client=request_client()))
    acquire = Acquire(
        key,
        asked.id,
        keep_alive=wish,
        priority=asked.key_priority,
        limited=True,
        allowed=asked.allowed,
        client=asked.client,
        may_download=asked.may_download,
        stays=asked.stays,
    )
    granted = await acquire_first(pool, acquire)
    granted.lease.close()
    return "load"
