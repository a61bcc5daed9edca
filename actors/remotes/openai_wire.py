"""OpenAI's chat and text completions, asked of a remote: request bodies, and events of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import attrs

from greenroom.actors.remotes import remote_call as wire
from greenroom.schemas.events.events import FinishReason, InferenceEvent, Token, TokenLogprob, Usage
from greenroom.schemas.messages import messages as said
from greenroom.schemas.messages import requests as asked
from greenroom.schemas.messages.messages import JsonObject, Message, Tool
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.settings.remotes import Remote

_REASONS: dict[str, FinishReason] = {"length": "length", "tool_calls": "tool_calls"}
_AMOUNTS = {"prompt": ("prompt_tokens", "input_tokens"), "generated": ("completion_tokens", "output_tokens")}
_RAW_LISTS = ("tokens", "token_logprobs", "top_logprobs")
_DETAILS = {
    "prompt": {"cached": "cached_tokens", "written": "cache_write_tokens", "images": "image_tokens"},
    "generated": {"reasoning": "reasoning_tokens"},
}


def chat_call(request: InferenceRequest, chat: ChatInput, model: str, remote: Remote) -> wire.Call:
    """Return the call of a chat with the model of this name. Raises ProblemError: 400: it cannot be asked."""
    api, is_official = remote.api, urlsplit(remote.url).hostname == "api.openai.com"
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(each) for each in chat.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        **_parameters(request, "max_completion_tokens" if is_official else "max_tokens"),
    }
    if tools := tools_of(chat):
        choice = chat.tool_choice
        named = {"type": "function", "function": {"name": choice.name}}
        body["tools"] = [{"type": "function", "function": function_of(tool)} for tool in tools]
        body["tool_choice"] = named if choice.mode == "named" else choice.mode
        if not chat.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    body |= _format(request.response_format, api) | _thinking(chat, api)
    if chat.continue_final_message or chat.template_options:
        if api != "greenroom":
            raise wire.unsupported("`continue_final_message` and `chat_template_kwargs`", api)
        body |= {"continue_final_message": chat.continue_final_message}
        body["chat_template_kwargs"] = dict(chat.template_options)
    if request.overflow == "drop_oldest" and api == "greenroom":
        body["truncation"] = "auto"
    return wire.Call("/chat/completions", body, ChatReader(request.choices))


def raw_call(request: InferenceRequest, raw: RawInput, model: str, remote: Remote) -> wire.Call:
    """Return the call of a completion of raw text; it raises as `chat_call` does."""
    if raw.echo or raw.scored is not None or request.response_format is not None:
        raise wire.unsupported("An echo of the prompt, or a format of raw text,", remote.api)
    prompt = raw.prompt if isinstance(raw.prompt, str) else list(raw.prompt)
    values = _parameters(request, "max_tokens")
    if values.pop("logprobs", False):
        values["logprobs"] = values.get("top_logprobs", 0)
    values.pop("top_logprobs", None)
    if raw.suffix:
        values["suffix"] = raw.suffix
    body = {"model": model, "prompt": prompt, "stream": True, "stream_options": {"include_usage": True}}
    return wire.Call("/completions", {**body, **values}, ChatReader(request.choices))


def tools_of(chat: ChatInput) -> tuple[Tool, ...]:
    """Return the tools that the remote may call."""
    choice = chat.tool_choice
    return chat.tools if choice.mode == "named" else choice.callable(chat.tools)


def function_of(tool: Tool) -> dict[str, Any]:
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, "description": tool.description, "parameters": schema_of(tool), **strict}


def schema_of(tool: Tool) -> JsonObject:
    return tool.parameters or {"type": "object", "properties": {}}


def _parameters(request: InferenceRequest, longest: str) -> dict[str, Any]:
    values = wire.parameters_of(request)
    if (most := values.pop("max_tokens", None)) is not None:
        values[longest] = most
    if "logit_bias" in values:
        values["logit_bias"] = {str(token): bias for token, bias in values["logit_bias"]}
    return values


def _format(wanted: asked.ResponseFormat | None, api: str) -> dict[str, Any]:
    match wanted:
        case None:
            return {}
        case asked.JsonObjectFormat():
            return {"response_format": {"type": "json_object"}}
        case asked.JsonSchemaFormat():
            return {"response_format": {"type": "json_schema", "json_schema": named_schema(wanted)}}
        case _ if api != "greenroom":
            raise wire.unsupported(f"`{wanted.param}`", api)
        case asked.RegexFormat(pattern):
            return {"guided_regex": pattern}
        case asked.ChoiceFormat(choices):
            return {"guided_choice": choices}
        case asked.LarkFormat(grammar):
            return {"guided_grammar": grammar}


def named_schema(wanted: asked.JsonSchemaFormat) -> dict[str, Any]:
    return {"name": wanted.name or "answer", "schema": wanted.schema, "strict": wanted.strict}


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
    content: Any = [_part(part) for part in message.content] if message.media else message.text
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    further = {
        "name": message.name if message.role != "tool" else None,
        "tool_call_id": message.tool_call_id,
        "tool_calls": calls or None,
        "reasoning_content": message.reasoning or None,
    }
    given = {name: value for name, value in further.items() if value is not None}
    return {"role": message.role, "content": (content or None) if calls else content, **given}


def _part(part: said.ContentPart) -> dict[str, Any]:
    match part:
        case said.TextPart(text):
            return {"type": "text", "text": text}
        case said.ImagePart():
            return {"type": "image_url", "image_url": {"url": wire.data_url(part), "detail": part.detail}}
        case said.DocumentPart():
            return {"type": "file", "file": wire.document_of(part)}
        case said.AudioPart():
            return wire.audio_part(part)


class ChatReader(wire.Reader):
    """Reads chunks of chats and of completions.

    Args:
        choices: Number of requested choices.
    """

    def __init__(self, choices: int) -> None:
        self._choices = [wire.Choice(index) for index in range(choices)]
        self._usage = Usage()

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        if "choices" not in data:
            raise wire.BrokenAnswer("a chunk without choices")
        if usage := data.get("usage"):  # some tell it so far in every chunk
            self._usage = usage_of(wire.members_of(usage))
        for choice in wire.items_of(data["choices"]):
            index = wire.index_of(choice.get("index", 0), min(len(self._choices), wire.MAX_CHOICES))
            yield from _read(self._choices[index], choice)

    def end(self) -> Iterator[InferenceEvent]:
        ends = [choice.finish(self._usage) for choice in self._choices]
        self.finished = True
        # The remote tells the sum over all choices.
        yield ends[0]
        none = attrs.evolve(self._usage, generated=0, reasoning=0)
        yield from (attrs.evolve(end, usage=none) for end in ends[1:])


def _read(known: wire.Choice, choice: JsonObject) -> Iterator[InferenceEvent]:
    delta = wire.members_of(choice.get("delta"))
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(thought, str):
        yield from known.think(thought)
    text = delta.get("content") or delta.get("refusal") or choice.get("text")
    yield from known.say(text, tuple(_logprobs(choice.get("logprobs"))))
    for place, call in enumerate(wire.items_of(delta.get("tool_calls"))):
        number, function = call.get("index", place), wire.members_of(call.get("function"))
        arguments = wire.text_of(function.get("arguments"))
        if wire.index_of(number, known.calls + 1) < known.calls:  # no call is left out
            yield from known.go_on(number, arguments)
        else:
            yield from known.begin_call(function, call.get("id"), arguments)
    if (reason := choice.get("finish_reason")) is not None:
        found = _REASONS.get(wire.text_of(reason), "stop")
        known.reason = "tool_calls" if known.calls and found == "stop" else found
        stop = choice.get("stop_reason")
        known.stop = stop if isinstance(stop, str) else None


def usage_of(usage: JsonObject) -> Usage:
    """Return the usage in an answer of OpenAI's protocols, whose fields have two sets of names."""
    amounts: dict[str, int] = {}
    for amount, names in _AMOUNTS.items():
        name = next((name for name in names if name in usage), names[0])
        amounts[amount] = wire.count_of(usage.get(name))
        told = wire.members_of(usage.get(f"{name}_details"))
        amounts |= {inner: wire.count_of(told.get(key)) for inner, key in _DETAILS[amount].items()}
    return Usage(**amounts)


def _logprobs(found: Any) -> Iterator[TokenLogprob]:
    told = wire.members_of(found)
    for entry in [*wire.items_of(told.get("content")), *_raw_entries(told)]:
        tops = tuple(_token(top) for top in wire.items_of(entry.get("top_logprobs")))
        yield TokenLogprob(*_token(entry), tops)


def _raw_entries(told: JsonObject) -> Iterator[JsonObject]:
    """Yield the tokens of raw text, which has lists beside each other, as a chat lists them."""
    tokens, values, tops = (wire.typed(told.get(name), list) for name in _RAW_LISTS)
    for token, value, top in zip_longest(tokens, values[: len(tokens)], tops[: len(tokens)]):
        likely = [{"token": each, "logprob": most} for each, most in wire.members_of(top).items()]
        yield {"token": token, "logprob": value, "top_logprobs": likely}


def _token(entry: JsonObject) -> tuple[Token, float]:
    text, value = wire.text_of(entry.get("token")), wire.number_of(entry.get("logprob"))
    code = entry.get("bytes")
    is_code = isinstance(code, list) and all(type(each) is int and 0 <= each < 256 for each in code)
    token = Token(text, bytes(code or ()) if is_code else text.encode("utf-8", "replace"))
    return token, -9999.0 if value is None else value  # as OpenAI writes what is impossible
