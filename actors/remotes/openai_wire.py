"""OpenAI's chat and text completions, asked of a remote: request bodies, and events of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.actors.remotes import remote_call as wire
from greenroom.schemas.events.events import (
    FinishReason,
    InferenceEvent,
    ReasoningDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    JsonObject,
    Message,
    TextPart,
    Tool,
    ToolChoice,
)
from greenroom.schemas.messages.requests import (
    ChatInput,
    ChoiceFormat,
    InferenceRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    LarkFormat,
    RawInput,
    RegexFormat,
    ResponseFormat,
)

_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


def chat_call(
    request: InferenceRequest, chat: ChatInput, model: str, api: str, *, official: bool
) -> wire.Call:
    """Return the call of a chat.

    Args:
        model: Its name in the remote.
        api: `greenroom`, which takes more parameters, or `openai`.
        official: True for OpenAI's own server.

    Raises:
        ProblemError: 400: the protocol cannot express the request.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(each) for each in chat.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        **_parameters(request, "max_completion_tokens" if official else "max_tokens"),
    }
    tools = tools_of(chat)
    if tools:
        body["tools"] = [{"type": "function", "function": function_of(tool)} for tool in tools]
        body["tool_choice"] = _tool_choice(chat.tool_choice)
        if not chat.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    if request.response_format is not None:
        body |= _format(request.response_format, api)
    body |= _thinking(chat, api)
    if chat.continue_final_message or chat.template_options:
        if api != "greenroom":
            raise wire.unsupported("`continue_final_message` and `chat_template_kwargs`", api)
        extra = {"continue_final_message": True} if chat.continue_final_message else {}
        body |= {**extra, "chat_template_kwargs": dict(chat.template_options)}
    if request.overflow == "drop_oldest" and api == "greenroom":
        body["truncation"] = "auto"
    return wire.Call("/chat/completions", body, ChatReader(request.choices))


def raw_call(request: InferenceRequest, raw: RawInput, model: str, api: str) -> wire.Call:
    """Return the call of a completion of raw text; it raises as `chat_call` does."""
    if raw.echo or raw.scored is not None or request.response_format is not None:
        raise wire.unsupported("An echo of the prompt, or a format of raw text,", api)
    prompt = raw.prompt if isinstance(raw.prompt, str) else list(raw.prompt)
    values = _parameters(request, "max_tokens")
    if values.pop("logprobs", False):
        values["logprobs"] = values.get("top_logprobs", 0)
    values.pop("top_logprobs", None)
    body = {"model": model, "prompt": prompt, "stream": True, "stream_options": {"include_usage": True}}
    suffix = {"suffix": raw.suffix} if raw.suffix else {}
    return wire.Call("/completions", {**body, **suffix, **values}, ChatReader(request.choices))


def tools_of(chat: ChatInput) -> tuple[Tool, ...]:
    """Return the tools that the remote may call."""
    choice = chat.tool_choice
    return chat.tools if choice.mode == "named" else choice.callable(chat.tools)


def function_of(tool: Tool) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, "description": tool.description, "parameters": parameters, **strict}


def _tool_choice(choice: ToolChoice) -> Any:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _parameters(request: InferenceRequest, longest: str) -> dict[str, Any]:
    values = wire.parameters_of(request)
    if (most := values.pop("max_tokens", None)) is not None:
        values[longest] = most
    if "logit_bias" in values:
        values["logit_bias"] = {str(token): bias for token, bias in values["logit_bias"]}
    for name in ("stop", "stop_token_ids"):
        if name in values:
            values[name] = list(values[name])
    return values


def _format(wanted: ResponseFormat, api: str) -> dict[str, Any]:
    match wanted:
        case JsonObjectFormat():
            return {"response_format": {"type": "json_object"}}
        case JsonSchemaFormat(schema, name, strict):
            inner = {"name": name or "answer", "schema": schema, "strict": strict}
            return {"response_format": {"type": "json_schema", "json_schema": inner}}
        case _ if api != "greenroom":
            raise wire.unsupported(f"`{wanted.param}`", api)
        case RegexFormat(pattern):
            return {"guided_regex": pattern}
        case ChoiceFormat(choices):
            return {"guided_choice": list(choices)}
        case LarkFormat(grammar):
            return {"guided_grammar": grammar}


def _thinking(chat: ChatInput, api: str) -> dict[str, Any]:
    wish = chat.thinking
    values: dict[str, Any] = {}
    if wish.enabled is False:
        values["reasoning_effort"] = "none"
    elif wish.effort is not None:
        values["reasoning_effort"] = wish.effort
    elif wish.enabled and api == "greenroom":
        values["enable_thinking"] = True
    if chat.verbosity != "medium":
        values["verbosity"] = chat.verbosity
    return values


def _message(message: Message) -> dict[str, Any]:
    plain = all(isinstance(part, TextPart) for part in message.content)
    content: Any = message.text if plain else [_part(part) for part in message.content]
    body: dict[str, Any] = {"role": message.role, "content": content}
    if message.name is not None and message.role != "tool":
        body["name"] = message.name
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        body["content"] = content or None
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    return body


def _part(part: ContentPart) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": wire.data_url(part), "detail": part.detail}}
        case DocumentPart():
            name = part.name or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": wire.data_url(part)}}
        case AudioPart():
            return wire.audio_part(part)


@attrs.define
class _Choice:
    raw: wire.Raw = attrs.field(factory=wire.Raw)
    reason: FinishReason | None = None
    stop: str | None = None
    calls: set[int] = attrs.field(factory=set)


class ChatReader(wire.Reader):
    """Reads chunks of chats and of completions.

    Args:
        choices: Number of requested choices.
    """

    def __init__(self, choices: int) -> None:
        self._choices = [_Choice() for _ in range(choices)]
        self._usage = Usage()
        self._has_usage = False

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        wire.raise_reported(data)
        if "choices" not in data:
            raise wire.BrokenAnswer("a chunk without choices")
        if (usage := wire.members_of(data.get("usage"))) and not self._has_usage:
            self._usage, self._has_usage = usage_of(usage), True
        for choice in wire.items_of(data["choices"]):
            yield from self._read(choice, wire.members_of(choice.get("delta")))

    def end(self) -> Iterator[InferenceEvent]:
        if any(choice.reason is None for choice in self._choices):
            raise wire.BrokenAnswer("an answer that ends before its finish reason")
        self.finished = True
        for index, choice in enumerate(self._choices):
            # The remote tells the sum over all choices.
            usage = self._usage if index == 0 else attrs.evolve(self._usage, generated=0, reasoning=0)
            assert choice.reason is not None
            yield choice.raw.finish(choice.reason, usage, index, choice.stop)

    def _read(self, choice: JsonObject, delta: JsonObject) -> Iterator[InferenceEvent]:
        index = wire.index_of(choice.get("index", 0), min(len(self._choices), wire.MAX_CHOICES))
        known = self._choices[index]
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            yield ReasoningDelta(thought, index)
        text = wire.text_of(delta.get("content") or delta.get("refusal") or choice.get("text"))
        logprobs = tuple(_logprobs(choice.get("logprobs")))
        yield from known.raw.say(text, index, logprobs)
        for place, call in enumerate(wire.items_of(delta.get("tool_calls"))):
            yield from self._read_call(known, call, place, index)
        reason = choice.get("finish_reason")
        if reason is not None:
            known.reason = (
                "tool_calls"
                if known.calls and reason == "stop"
                else _REASONS.get(wire.text_of(reason), "stop")
            )
            stop = choice.get("stop_reason")
            known.stop = stop if isinstance(stop, str) else None

    @staticmethod
    def _read_call(known: _Choice, call: JsonObject, place: int, index: int) -> Iterator[ToolCallDelta]:
        number = wire.index_of(call.get("index", place), wire.MAX_CALLS)
        function = wire.members_of(call.get("function"))
        arguments = wire.text_of(function.get("arguments"))
        if number in known.calls:
            if arguments:
                yield ToolCallDelta(number, arguments=arguments, index=index)
            return
        name = wire.text_of(function.get("name"))
        if not name:
            raise wire.BrokenAnswer("a call without a name")
        if number != len(known.calls):
            raise wire.BrokenAnswer("a call out of its order")
        known.calls.add(number)
        yield ToolCallDelta(number, wire.text_of(call.get("id")) or f"call_{number}", name, arguments, index)


def usage_of(usage: JsonObject) -> Usage:
    """Return the usage in an answer of OpenAI's protocols, whose fields have two sets of names."""
    read = wire.members_of(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    written = wire.members_of(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    return Usage(
        prompt=wire.count_of(usage.get("prompt_tokens", usage.get("input_tokens"))),
        generated=wire.count_of(usage.get("completion_tokens", usage.get("output_tokens"))),
        cached=wire.count_of(read.get("cached_tokens")),
        reasoning=wire.count_of(written.get("reasoning_tokens")),
        written=wire.count_of(read.get("cache_write_tokens")),
        images=wire.count_of(read.get("image_tokens")),
    )


def _logprobs(found: Any) -> Iterator[TokenLogprob]:
    for entry in wire.items_of(wire.members_of(found).get("content")):
        tops = tuple(_token(top) for top in wire.items_of(entry.get("top_logprobs")))
        yield TokenLogprob(*_token(entry), tops)


def _token(entry: JsonObject) -> tuple[Token, float]:
    text, value, code = (
        wire.text_of(entry.get("token")),
        wire.number_of(entry.get("logprob")),
        entry.get("bytes"),
    )
    value = -9999.0 if value is None else value  # as OpenAI writes what is impossible
    if isinstance(code, list) and all(type(each) is int and 0 <= each < 256 for each in code):
        return Token(text, bytes(code)), value
    return Token(text, text.encode("utf-8", "replace")), value
