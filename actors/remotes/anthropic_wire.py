"""Anthropic's messages, asked of a remote: request bodies, and events of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.openai_wire import tools_of
from greenroom.schemas.events.events import FinishReason, InferenceEvent, ReasoningDelta, ToolCallDelta, Usage
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    JsonObject,
    Message,
    TextPart,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, JsonSchemaFormat

API = "anthropic"
DEFAULT_TOKENS = 8_192
"""Length limit of an answer where a request sets none, which this protocol does not allow."""
LEAST_THINKING = 1_024
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768}
_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_PASSED_ON = ("temperature", "top_p", "top_k")


def messages_call(request: InferenceRequest, chat: ChatInput, model: str) -> wire.Call:
    """Return the call of a chat.

    Raises:
        ProblemError: 400: the protocol cannot express the request.
    """
    values = wire.parameters_of(request)
    if request.choices > 1 or values.get("logprobs"):
        raise wire.unsupported("More than one answer, or log-probabilities,", API)
    most = values.get("max_tokens") or DEFAULT_TOKENS
    body: dict[str, Any] = {"model": model, "max_tokens": most, "stream": True, "messages": _turns(chat)}
    body |= {name: values[name] for name in _PASSED_ON if name in values}
    if stop := values.get("stop"):
        body["stop_sequences"] = list(stop)
    if system := "\n\n".join(each.text for each in chat.messages if each.role == "system"):
        body["system"] = system
    if tools := tools_of(chat):
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters or {"type": "object", "properties": {}},
            }
            for tool in tools
        ]
        choice = chat.tool_choice
        named = {"type": "tool", "name": choice.name}
        body["tool_choice"] = named if choice.mode == "named" else {"type": _CHOICES[choice.mode]}
        if not chat.parallel_tool_calls and choice.mode != "none":
            body["tool_choice"]["disable_parallel_tool_use"] = True
    body |= _thinking(chat, values, most)
    if request.response_format is not None:
        if not isinstance(request.response_format, JsonSchemaFormat):
            raise wire.unsupported(f"`{request.response_format.param}`", API)
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.response_format.schema}}
    return wire.Call("/messages", body, MessageReader())


def _thinking(chat: ChatInput, values: dict[str, Any], most: int) -> dict[str, Any]:
    wish, budget = chat.thinking, values.get("thinking_budget")
    if wish.enabled is False or budget == 0:
        return {"thinking": {"type": "disabled"}}
    if not wish.enabled and budget is None:
        return {}
    asked = budget if budget is not None else _BUDGETS[wish.effort or "medium"]
    # The answer's limit counts the reasoning, too.
    return {
        "thinking": {"type": "enabled", "budget_tokens": max(asked, LEAST_THINKING)},
        "max_tokens": most + max(asked, LEAST_THINKING),
    }


def _turns(chat: ChatInput) -> list[dict[str, Any]]:
    """Return the turns, in which results of tools are the user's, and no role speaks twice in a row."""
    turns: list[dict[str, Any]] = []
    for message in chat.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += _blocks(message)
        else:
            turns.append({"role": role, "content": _blocks(message)})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    blocks = [_block(part) for part in message.content if not (isinstance(part, TextPart) and not part.text)]
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}]
    for call in message.tool_calls:
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError:
            arguments = {"input": call.arguments}
        arguments = arguments if isinstance(arguments, dict) else {"input": arguments}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _block(part: ContentPart) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart() | DocumentPart():
            kind, _, encoded = wire.data_url(part).removeprefix("data:").partition(";base64,")
            source = {"type": "base64", "media_type": kind, "data": encoded}
            return {"type": "image" if isinstance(part, ImagePart) else "document", "source": source}
        case AudioPart():
            raise wire.unsupported("Sound in a message", API)


@attrs.define
class _Block:
    call: int | None = None
    has_input: bool = False


class MessageReader(wire.Reader):
    """Reads the events of a message."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._raw = wire.Raw()
        self._calls = 0
        self._usage = Usage()
        self._reason: FinishReason | None = None
        self._stop: str | None = None

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        wire.raise_reported(data)
        match data.get("type"):
            case "message_start":
                self._count(wire.members_of(wire.members_of(data.get("message")).get("usage")))
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
        if self._reason is None:
            raise wire.BrokenAnswer("an answer that ends before its stop reason")
        self.finished = True
        yield self._raw.finish(self._reason, self._usage, stop=self._stop)

    def _begin(self, data: JsonObject, block: JsonObject) -> Iterator[InferenceEvent]:
        known = self._blocks[wire.index_of(data.get("index"), wire.MAX_CALLS)] = _Block()
        match block.get("type"):
            case "tool_use":
                known.call, self._calls = self._calls, self._calls + 1
                name = wire.text_of(block.get("name"))
                if not name:
                    raise wire.BrokenAnswer("a call without a name")
                yield ToolCallDelta(known.call, wire.text_of(block.get("id")) or f"call_{known.call}", name)
            case "text":
                yield from self._raw.say(wire.text_of(block.get("text")))
            case "thinking":
                if thought := wire.text_of(block.get("thinking")):
                    yield ReasoningDelta(thought)

    def _go_on(self, data: JsonObject, delta: JsonObject) -> Iterator[InferenceEvent]:
        known = self._blocks.get(wire.index_of(data.get("index"), wire.MAX_CALLS))
        if known is None:
            raise wire.BrokenAnswer("a part of a block that has not begun")
        match delta.get("type"):
            case "text_delta":
                yield from self._raw.say(wire.text_of(delta.get("text")))
            case "thinking_delta":
                if thought := wire.text_of(delta.get("thinking")):
                    yield ReasoningDelta(thought)
            case "input_json_delta" if known.call is not None:
                if part := wire.text_of(delta.get("partial_json")):
                    known.has_input = True
                    yield ToolCallDelta(known.call, arguments=part)

    def _take_reason(self, members: JsonObject) -> None:
        if (reason := members.get("stop_reason")) is not None:
            self._reason = _REASONS.get(wire.text_of(reason), "stop")
        stop = members.get("stop_sequence")
        self._stop = stop if isinstance(stop, str) else None

    def _count(self, usage: JsonObject) -> None:
        if "input_tokens" in usage:
            cached, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
            sums = wire.count_of(usage["input_tokens"]) + wire.count_of(cached) + wire.count_of(written)
            self._usage = attrs.evolve(
                self._usage, prompt=sums, cached=wire.count_of(cached), written=wire.count_of(written)
            )
        if "output_tokens" in usage:
            self._usage = attrs.evolve(self._usage, generated=wire.count_of(usage["output_tokens"]))
