"""Anthropic's messages, asked of a remote: request bodies, and events of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs
import msgspec

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.openai_wire import schema_of, tools_of
from greenroom.schemas.events.events import InferenceEvent, Usage
from greenroom.schemas.messages import messages as said
from greenroom.schemas.messages.messages import JsonObject, Message
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, JsonSchemaFormat
from greenroom.schemas.settings.remotes import Remote

DEFAULT_TOKENS = 8_192
"""Length limit of an answer where a request sets none, which this protocol does not allow."""
LEAST_THINKING = 1_024
BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768}
_REASONS: Any = {"max_tokens": "length", "model_context_window_exceeded": "length", "tool_use": "tool_calls"}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_PASSED_ON = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop_sequences"}
_KNOWN = {*_PASSED_ON, "max_tokens", "thinking_budget", "continue_final_message"}


def messages_call(request: InferenceRequest, chat: ChatInput, model: str, remote: Remote) -> wire.Call:
    """Return the call of a chat. Raises ProblemError: 400: the protocol cannot express the request."""
    values = wire.parameters_of(request)
    wire.refuse_others(request, chat, _KNOWN, remote.api)
    most = values.get("max_tokens") or DEFAULT_TOKENS
    turns = _turns(chat, remote)
    body: dict[str, Any] = {"model": model, "max_tokens": most, "stream": True, "messages": turns}
    thinking = _thinking(chat, values, most, turns)
    if "max_tokens" in thinking:  # reasoning allows hardly any sampling: the operator's is left out
        values = dict(request.overrides)
    body |= {there: values[here] for here, there in _PASSED_ON.items() if values.get(here) not in (None, ())}
    if system := "\n\n".join(each.text for each in chat.messages if each.role == "system"):
        body["system"] = system
    choice = chat.tool_choice
    # Earlier calls need their tools even where none may be called now.
    if tools := chat.tools if choice.mode == "none" else tools_of(chat):
        named = {"type": "tool", "name": choice.name}
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": schema_of(tool)}
            for tool in tools
        ]
        body["tool_choice"] = named if choice.mode == "named" else {"type": _CHOICES[choice.mode]}
        if not chat.parallel_tool_calls and choice.mode != "none":
            body["tool_choice"]["disable_parallel_tool_use"] = True
    body |= thinking
    if request.response_format is not None:
        if not isinstance(request.response_format, JsonSchemaFormat):
            raise wire.unsupported(f"`{request.response_format.param}`", remote.api)
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.response_format.schema}}
    return wire.Call("/messages", body, MessageReader())


def _thinking(chat: ChatInput, values: dict[str, Any], most: int, turns: list[Any]) -> dict[str, Any]:
    wish, budget = chat.thinking, values.get("thinking_budget")
    if wish.enabled is False or budget == 0:
        return {"thinking": {"type": "disabled"}}
    # Reasoning before a call would have to come back with its signature, which is not kept.
    has_results = any(block["type"] == "tool_result" for turn in turns[-1:] for block in turn["content"])
    if has_results or (not wish.enabled and budget is None):
        return {}
    asked = max(LEAST_THINKING, BUDGETS[wish.effort or "medium"] if budget is None else budget)
    # The answer's limit counts the reasoning, too.
    return {"thinking": {"type": "enabled", "budget_tokens": asked}, "max_tokens": most + asked}


def _turns(chat: ChatInput, remote: Remote) -> list[dict[str, Any]]:
    """Return the turns, in which results of tools are the user's, and no role speaks twice in a row."""
    turns: list[dict[str, Any]] = []
    for message in chat.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"] += _blocks(message, remote)
    return turns


def _blocks(message: Message, remote: Remote) -> list[dict[str, Any]]:
    blocks = [_block(part, remote) for part in message.content if part != said.TextPart("")]
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}]
    for call in message.tool_calls:
        arguments: Any = call.arguments or "{}"
        with suppress(ValueError, RecursionError):
            arguments = msgspec.json.decode(arguments)  # unlike `json` it takes no `NaN`
        members = arguments if isinstance(arguments, dict) else {"input": arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": members})
    return blocks


def _block(part: said.ContentPart, remote: Remote) -> dict[str, Any]:
    match part:
        case said.TextPart(text):
            return {"type": "text", "text": text}
        case said.ImagePart() | said.DocumentPart():
            kind = "image" if isinstance(part, said.ImagePart) else "document"
            data = {"media_type": wire.media_type(part), "data": wire.encoded(part.data)}
            return {"type": kind, "source": {"type": "base64", **data}}
        case said.AudioPart():
            raise wire.unsupported("Sound in a message", remote.api)


class MessageReader(wire.Reader):
    """Reads the events of a message."""

    def __init__(self) -> None:
        self._choice = wire.Choice()
        self._calls: dict[int, int | None] = {}  # by their blocks; None for blocks of another kind
        self._usage = Usage()

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        match data.get("type"):
            case "message_start":
                self._count(wire.members_of(data.get("message"), "usage"))
            case "content_block_start":
                yield from self._begin(data, wire.members_of(data.get("content_block")))
            case "content_block_delta":
                yield from self._go_on(data, wire.members_of(data.get("delta")))
            case "message_delta":
                self._count(wire.members_of(data.get("usage")))
                self._take_reason(wire.members_of(data.get("delta")))
            case "message_stop":
                yield from self.end()
            case str():
                pass  # a ping, the end of a block, or what a newer version adds
            case _:
                raise wire.BrokenAnswer("an event without a type")

    def end(self) -> Iterator[InferenceEvent]:
        yield self._choice.finish(self._usage)
        self.finished = True

    def _begin(self, data: JsonObject, block: JsonObject) -> Iterator[InferenceEvent]:
        place, kind = wire.index_of(data.get("index"), wire.MAX_CALLS), block.get("type")
        self._calls[place] = self._choice.calls if kind == "tool_use" else None
        match kind:
            case "tool_use":
                yield from self._choice.begin_call(block, block.get("id"))
            case "text":
                yield from self._choice.say(block.get("text"))
            case "thinking":
                yield from self._choice.think(block.get("thinking"))

    def _go_on(self, data: JsonObject, delta: JsonObject) -> Iterator[InferenceEvent]:
        place = wire.index_of(data.get("index"), wire.MAX_CALLS)
        if place not in self._calls:
            raise wire.BrokenAnswer("a part of a block that has not begun")
        call = self._calls[place]
        match delta.get("type"):
            case "text_delta":
                yield from self._choice.say(delta.get("text"))
            case "thinking_delta":
                yield from self._choice.think(delta.get("thinking"))
            case "input_json_delta" if call is not None:
                yield from self._choice.go_on(call, delta.get("partial_json"))

    def _take_reason(self, members: JsonObject) -> None:
        if (reason := members.get("stop_reason")) is not None:
            self._choice.reason = _REASONS.get(wire.text_of(reason), "stop")
        stop = members.get("stop_sequence")
        self._choice.stop = stop if isinstance(stop, str) else None

    def _count(self, usage: JsonObject) -> None:
        if "input_tokens" in usage:
            names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            read, cached, written = (wire.count_of(usage.get(name)) for name in names)
            sums = {"prompt": read + cached + written, "cached": cached, "written": written}
            self._usage = attrs.evolve(self._usage, **sums)
        if "output_tokens" in usage:
            self._usage = attrs.evolve(self._usage, generated=wire.count_of(usage["output_tokens"]))
