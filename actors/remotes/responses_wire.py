"""OpenAI's responses, asked of a remote: request bodies, and events of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.anthropic_wire import BUDGETS
from greenroom.actors.remotes.openai_wire import function_of, named_schema, tools_of, usage_of
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages import messages as said
from greenroom.schemas.messages.messages import JsonObject, Message
from greenroom.schemas.messages.requests import (
    ChatInput,
    InferenceRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
)
from greenroom.schemas.settings.remotes import Remote

_PASSED_ON = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens")
_THOUGHTS = tuple(f"response.reasoning{kind}.delta" for kind in ("", "_text", "_summary_text"))


def response_call(request: InferenceRequest, chat: ChatInput, model: str, remote: Remote) -> wire.Call:
    """Return the call of a chat. Raises ProblemError: 400: the protocol cannot express the request."""
    values = wire.parameters_of(request)
    wire.refuse_others(request, chat, {*_PASSED_ON, "verbosity", "thinking_budget"}, remote.api)
    items = [item for message in chat.messages for item in _items(message)]
    body: dict[str, Any] = {"model": model, "input": items, "stream": True, "store": False}
    passed = {name: values[name] for name in _PASSED_ON if values.get(name) is not None}
    body |= {name.replace("max_", "max_output_"): value for name, value in passed.items()}
    if tools := tools_of(chat):
        choice = chat.tool_choice
        named = {"type": "function", "name": choice.name}
        body["tools"] = [{"type": "function", "strict": False, **function_of(tool)} for tool in tools]
        body["tool_choice"] = named if choice.mode == "named" else choice.mode
        body["parallel_tool_calls"] = chat.parallel_tool_calls
    effort, budget = chat.thinking.effort, values.get("thinking_budget")
    if effort is None and budget is not None:
        effort = "low" if budget <= BUDGETS["low"] else "medium" if budget <= BUDGETS["medium"] else "high"
    if chat.thinking.enabled is False:
        body["reasoning"] = {"effort": "none"}
    elif effort is not None:
        body["reasoning"] = {"effort": effort, "summary": "auto"}
    text: dict[str, Any] = {} if chat.verbosity == "medium" else {"verbosity": chat.verbosity}
    match request.response_format:
        case None:
            pass
        case JsonObjectFormat():
            text["format"] = {"type": "json_object"}
        case JsonSchemaFormat() as wanted:
            text["format"] = {"type": "json_schema", **named_schema(wanted)}
        case other:
            raise wire.unsupported(f"`{other.param}`", remote.api)
    if text:
        body["text"] = text
    return wire.Call("/responses", body, ResponseReader())


def _items(message: Message) -> Iterator[dict[str, Any]]:
    kind = "output_text" if message.role == "assistant" else "input_text"
    parts = [_part(part, kind) for part in message.content]
    if message.role == "tool":
        output = parts if message.media else message.text
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
    elif parts:
        yield {"type": "message", "role": message.role, "content": parts}
    for call in message.tool_calls:
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call", **called}


def _part(part: said.ContentPart, kind: str) -> dict[str, Any]:
    match part:
        case said.TextPart(text):
            return {"type": kind, "text": text}
        case said.ImagePart():
            return {"type": "input_image", "image_url": wire.data_url(part), "detail": part.detail}
        case said.DocumentPart():
            return {"type": "input_file", **wire.document_of(part)}
        case said.AudioPart():
            return wire.audio_part(part)


class ResponseReader(wire.Reader):
    """Reads the events of a response."""

    def __init__(self) -> None:
        self._choice = wire.Choice()
        self._calls: dict[str, int] = {}

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        match wire.text_of(data.get("type")):
            case "":
                raise wire.BrokenAnswer("an event without a type")
            case kind if kind in _THOUGHTS:
                yield from self._choice.think(data.get("delta"))
            case "response.output_text.delta" | "response.refusal.delta":
                yield from self._choice.say(data.get("delta"))
            case "response.output_item.added":
                item, number = wire.members_of(data.get("item")), self._choice.calls
                if item.get("type") == "function_call":
                    yield from self._choice.begin_call(item, item.get("call_id"))
                    self._calls[wire.text_of(item.get("id")) or f"item_{number}"] = number
            case "response.function_call_arguments.delta":
                call = self._calls.get(wire.text_of(data.get("item_id")))
                if call is None:
                    raise wire.BrokenAnswer("arguments of a call that has not begun")
                yield from self._choice.go_on(call, data.get("delta"))
            case "response.completed" | "response.incomplete" | "response.failed":
                yield self._finish(wire.members_of(data.get("response")))

    def _finish(self, response: JsonObject) -> InferenceEvent:
        if response.get("status") not in ("completed", "incomplete"):
            raise wire.ReportedError(response.get("error"))
        why = wire.members_of(response.get("incomplete_details")).get("reason")
        is_cut = why == "max_output_tokens"
        self._choice.reason = "length" if is_cut else "tool_calls" if self._choice.calls else "stop"
        end = self._choice.finish(usage_of(wire.members_of(response.get("usage"))))
        self.finished = True
        return end
