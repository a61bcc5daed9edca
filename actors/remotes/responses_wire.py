"""OpenAI's responses, asked of a remote: request bodies, and events of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.openai_wire import function_of, tools_of, usage_of
from greenroom.schemas.events.events import FinishReason, InferenceEvent, ReasoningDelta, ToolCallDelta
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    JsonObject,
    Message,
    TextPart,
)
from greenroom.schemas.messages.requests import (
    ChatInput,
    InferenceRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
)

API = "responses"
_PASSED_ON = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_THOUGHTS = (
    "response.reasoning_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning.delta",
)
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def response_call(request: InferenceRequest, chat: ChatInput, model: str) -> wire.Call:
    """Return the call of a chat.

    Raises:
        ProblemError: 400: the protocol cannot express the request.
    """
    values = wire.parameters_of(request)
    if request.choices > 1 or values.get("stop") or values.get("logprobs"):
        raise wire.unsupported("More than one answer, stop strings or log-probabilities", API)
    items = [item for message in chat.messages for item in _items(message)]
    body: dict[str, Any] = {"model": model, "input": items, "stream": True, "store": False}
    body |= {name: values[name] for name in _PASSED_ON if name in values}
    if (most := values.get("max_tokens")) is not None:
        body["max_output_tokens"] = most
    if tools := tools_of(chat):
        body["tools"] = [{"type": "function", "strict": False, **function_of(tool)} for tool in tools]
        choice = chat.tool_choice
        named = {"type": "function", "name": choice.name}
        body["tool_choice"] = named if choice.mode == "named" else choice.mode
        body["parallel_tool_calls"] = chat.parallel_tool_calls
    if chat.thinking.enabled is False:
        body["reasoning"] = {"effort": "none"}
    elif chat.thinking.effort is not None:
        body["reasoning"] = {"effort": chat.thinking.effort, "summary": "auto"}
    match request.response_format:
        case None:
            pass
        case JsonObjectFormat():
            body["text"] = {"format": {"type": "json_object"}}
        case JsonSchemaFormat(schema, name, strict):
            wanted = {"type": "json_schema", "name": name or "answer", "schema": schema, "strict": strict}
            body["text"] = {"format": wanted}
        case other:
            raise wire.unsupported(f"`{other.param}`", API)
    return wire.Call("/responses", body, ResponseReader())


def _items(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        output = [_part(part, "input_text") for part in message.content] if message.media else message.text
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
        return
    kind = "output_text" if message.role == "assistant" else "input_text"
    if message.content:
        parts = [_part(part, kind) for part in message.content]
        yield {"type": "message", "role": message.role, "content": parts}
    for call in message.tool_calls:
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call", **called}


def _part(part: ContentPart, kind: str) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": kind, "text": text}
        case ImagePart():
            return {"type": "input_image", "image_url": wire.data_url(part), "detail": part.detail}
        case DocumentPart():
            name = part.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": wire.data_url(part)}
        case AudioPart():
            return wire.audio_part(part)


class ResponseReader(wire.Reader):
    """Reads the events of a response."""

    def __init__(self) -> None:
        self._raw = wire.Raw()
        self._calls: dict[str, int] = {}

    def event(self, data: JsonObject) -> Iterator[InferenceEvent]:
        wire.raise_reported(data)
        kind = wire.text_of(data.get("type"))
        if not kind:
            raise wire.BrokenAnswer("an event without a type")
        if kind in _THOUGHTS:
            if thought := wire.text_of(data.get("delta")):
                yield ReasoningDelta(thought)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            yield from self._raw.say(wire.text_of(data.get("delta")))
        elif kind == "response.output_item.added":
            item = wire.members_of(data.get("item"))
            if item.get("type") == "function_call":
                yield self._begin(item)
        elif kind == "response.function_call_arguments.delta":
            number = self._calls.get(wire.text_of(data.get("item_id")))
            if number is None:
                raise wire.BrokenAnswer("arguments of a call that has not begun")
            if part := wire.text_of(data.get("delta")):
                yield ToolCallDelta(number, arguments=part)
        elif kind in _ENDS:
            yield from self._finish(wire.members_of(data.get("response")))

    def end(self) -> Iterator[InferenceEvent]:
        if not self.finished:
            raise wire.BrokenAnswer("an answer that ends before its last event")
        return iter(())

    def _begin(self, item: JsonObject) -> ToolCallDelta:
        number, name = len(self._calls), wire.text_of(item.get("name"))
        if not name:
            raise wire.BrokenAnswer("a call without a name")
        self._calls[wire.text_of(item.get("id")) or f"item_{number}"] = number
        return ToolCallDelta(number, wire.text_of(item.get("call_id")) or f"call_{number}", name)

    def _finish(self, response: JsonObject) -> Iterator[InferenceEvent]:
        status = response.get("status")
        if status not in ("completed", "incomplete"):
            raise wire.ReportedError(*wire.words_of(response.get("error")))
        self.finished = True
        why = wire.members_of(response.get("incomplete_details")).get("reason")
        reason: FinishReason = (
            "length" if why == "max_output_tokens" else "tool_calls" if self._calls else "stop"
        )
        yield self._raw.finish(reason, usage_of(wire.members_of(response.get("usage"))))
