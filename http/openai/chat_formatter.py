"""Formatting of chat responses, streamed or complete."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting import STEPS, CollectedChoice, step_of, steps_of
from greenroom.http.answering.event_stream import news_members
from greenroom.http.answering.tools import TextInputReader, text_of
from greenroom.http.encoding.encoding import json_ascii, json_string
from greenroom.http.openai.chunk_stream import (
    ChunkStream,
    chat_logprobs,
    finish_reason,
    includes_status,
    includes_usage,
    system_fingerprint,
    timings,
    usage_body,
)
from greenroom.schemas.events.events import (
    InferenceEvent,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.events.result_events import ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.messages import ToolCall
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.wire.openai_answers import ChatChoice, ChatCompletion, ChatMessage, is_sent
from greenroom.schemas.wire.openai_chat import (
    ChatRequest,
    FunctionParam,
    MessageParam,
    ToolCallParam,
    ToolParam,
)


@attrs.frozen
class ChatFormatter:
    """Formats the response to one chat request."""

    wire: ChatRequest
    answer_id: str
    choices: int = 1
    created: int = attrs.field(factory=lambda: int(time.time()))
    custom: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)

    def stream(self, model: str) -> ChatStream:
        kind = FunctionStream if speaks_of_functions(self.wire) else ChatStream
        return kind(
            self.answer_id,
            model,
            self.created,
            choices=self.choices,
            include_usage=includes_usage(self.wire.stream_options),
            with_progress=bool(self.wire.return_progress),
            with_status=includes_status(self.wire.stream_options),
            custom=self.custom,
            tier=self._tier,
        )

    @property
    def _tier(self) -> str | None:
        return "flex" if self.wire.service_tier == "flex" else None

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        finished = [choice.finished for choice in choices]
        answer = ChatCompletion(
            self.answer_id,
            self.created,
            model,
            tuple(self._choice(i, choice) for i, choice in enumerate(choices)),
            usage_body(finished, self.choices),
            timings(finished, self.choices),
            system_fingerprint(),
            dropped_messages=choices[0].dropped_messages or None,
            service_tier=self._tier,
        )
        return attrs.asdict(answer, filter=is_sent)

    def _choice(self, index: int, choice: CollectedChoice) -> ChatChoice:
        reasoning = choice.reasoning or None
        calls, reason = choice.tool_calls, finish_reason(choice.finished)
        message = ChatMessage(
            content=None if calls and not choice.text else choice.text,
            reasoning_content=reasoning,
            reasoning=reasoning,
        )
        if steps := steps_of(choice.parts):
            message = attrs.evolve(message, greenroom_steps=steps)
        if speaks_of_functions(self.wire):
            message = attrs.evolve(message, function_call=function_call(calls))
            reason = "function_call" if reason == "tool_calls" else reason
        else:
            message = attrs.evolve(message, tool_calls=tuple(map(self._tool_call, calls)) or None)
        wanted = choice.parameters is not None and choice.parameters.logprobs
        logprobs = json.loads(chat_logprobs(choice.logprobs, empty=wanted and not calls))
        return ChatChoice(index, message, reason, choice.finished.stop, logprobs)

    def _tool_call(self, call: ToolCall) -> dict[str, Any]:
        if call.name in self.custom:
            custom = {"name": call.name, "input": text_of(call.arguments)}
            return {"id": call.id, "type": "custom", "custom": custom}
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id, "type": "function", "function": function}


ROLE = b'{"role":"assistant","content":"","refusal":null}'
EMPTY = b'{"content":""}'


class ChatStream(ChunkStream):
    """Formats one streamed response.

    The constant parts of a chunk are encoded once; only the delta is encoded per event.

    Args:
        answer_id: Id of the response, `chatcmpl-…`, the same in every chunk.
        created: Unix time in seconds.
        include_usage: True if the client requested a usage chunk at the end.
        with_progress: True if the client requested every step of prefill, in llama.cpp's fields.
        with_status: True if the client requested news while it waits.
        tier: Service tier that each chunk tells; None to tell none.
    """

    kind = "chat.completion.chunk"

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        *,
        choices: int = 1,
        include_usage: bool = False,
        with_progress: bool = False,
        with_status: bool = False,
        custom: frozenset[str] = frozenset(),
        tier: str | None = None,
    ) -> None:
        super().__init__(
            answer_id,
            model,
            created,
            choices=choices,
            choices_per_prompt=choices,
            include_usage=include_usage,
            with_status=with_status or with_progress,
        )
        if tier is not None:
            self._head += b'"service_tier":%b,' % json_string(tier)
        self._with_progress = with_progress
        self._has_progressed = False
        self._custom = custom
        self._inputs: dict[tuple[int, int], TextInputReader] = {}
        self._choice_heads = [self._head + b'"choices":[{"index":%d,"delta":' % i for i in range(choices)]
        self._choice_tail = b',"logprobs":null,"finish_reason":null}]' + self._usage + b"}\n\n"
        self._tail_with_logprobs = b',"logprobs":%b,"finish_reason":null}]' + self._usage + b"}\n\n"
        ending = b',"logprobs":null,"finish_reason":%b,"stop_reason":%b}]'
        self._tail_with_reason = ending + self._usage + b"}\n\n"

    def opening(self) -> bytes:
        return b"".join(self._chunk(ROLE, index) for index in range(len(self._choice_heads)))

    def event(self, event: InferenceEvent) -> bytes:
        if self._with_status:
            self._news.record(event)
        match event:
            case TextDelta(text, index, logprobs):
                delta = b'{"content":%b}' % json_string(text)
                if logprobs:
                    return (
                        self._choice_heads[index] + delta + self._tail_with_logprobs % chat_logprobs(logprobs)
                    )
                return self._chunk(delta, index)
            case ReasoningDelta(text, index):
                return self._chunk(_reasoning(json_string(text)), index)
            case ToolCallDelta():
                return self._call_chunk(event)
            case PromptProgress() if self._with_progress:
                return self._progress_chunks(event)
            case ToolsListed() | ServerCall() | ToolResult():
                return self._chunk(json_ascii({"content": "", STEPS: [step_of(event)]}))
            case _:
                return super().event(event)

    def _progress_chunks(self, event: PromptProgress) -> bytes:
        """Return a progress report; as in llama.cpp, one of the cached tokens precedes the first."""
        chunks, empty = b"", self._empty_chunk()
        if not self._has_progressed and event.processed > event.cached:
            began = PromptProgress(event.cached, event.total, event.cached)
            chunks = self._with_members(empty, news_members(began))
        self._has_progressed = True
        return chunks + self._with_members(empty, self._news.members())

    def _empty_chunk(self) -> bytes:
        return self._chunk(EMPTY)

    def _chunk(self, delta: bytes, index: int = 0) -> bytes:
        return self._choice_heads[index] + delta + self._choice_tail

    def _call_chunk(self, event: ToolCallDelta) -> bytes:
        place = event.index, event.call
        if event.name in self._custom:
            self._inputs[place] = TextInputReader()
        if place in self._inputs:
            return self._custom_chunk(event, self._inputs[place].feed(event.arguments))
        return self._chunk(b'{"content":null,"tool_calls":[%b]}' % _tool_call(event), event.index)

    def _custom_chunk(self, event: ToolCallDelta, text: str) -> bytes:
        if event.id is None and not text:
            return b""
        return self._chunk(b'{"content":null,"tool_calls":[%b]}' % _custom_call(event, text), event.index)

    def _last_chunk(self, index: int, reason: bytes, stop: bytes) -> bytes:
        rest = b""
        for (choice, call), reader in self._inputs.items():
            if choice == index:
                rest += self._custom_chunk(ToolCallDelta(call, index=index), reader.finish())
        return rest + self._choice_heads[index] + b"{}" + self._tail_with_reason % (reason, stop)


def _reasoning(text: bytes) -> bytes:
    # Clients disagree on the field's name.
    return b'{"content":null,"reasoning_content":%b,"reasoning":%b}' % (text, text)


def _tool_call(event: ToolCallDelta) -> bytes:
    arguments = json_string(event.arguments)
    if event.id is None:
        return b'{"index":%d,"function":{"arguments":%b}}' % (event.call, arguments)
    # Id and name are sent once, since clients concatenate repeated fields.
    return b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}' % (
        event.call,
        json_string(event.id),
        json_string(event.name or ""),
        arguments,
    )


def _custom_call(event: ToolCallDelta, text: str) -> bytes:
    if event.id is None:
        return b'{"index":%d,"custom":{"input":%b}}' % (event.call, json_string(text))
    return b'{"index":%d,"id":%b,"type":"custom","custom":{"name":%b,"input":%b}}' % (
        event.call,
        json_string(event.id),
        json_string(event.name or ""),
        json_string(text),
    )


# Legacy `functions` and `function_call`, replaced by `tools` in November 2023 but still sent by old clients.
#
# They are read as tools without parallel calls; the response uses the legacy fields.


def speaks_of_functions(wire: ChatRequest) -> bool:
    """Return whether the response uses the legacy fields."""
    return bool(wire.functions)


def with_tools(wire: ChatRequest) -> ChatRequest:
    """Return the request with legacy fields converted to tools. Raises ProblemError: 400 that names the
    offending field.
    """
    wire = attrs.evolve(wire, messages=tuple(_messages(wire.messages)))
    choice = _tool_choice(wire.function_call, wire.functions or ())
    if not wire.functions:
        if wire.function_call not in (None, "auto") and (wire.tools or wire.function_call != "none"):
            raise invalid(
                "`function_call` needs `functions`; beside `tools` send `tool_choice`.", "function_call"
            )
        return wire
    if wire.tools or wire.tool_choice is not None:
        detail = "`functions` cannot be combined with `tools` or `tool_choice`, which replace it."
        raise invalid(detail, "functions")
    return attrs.evolve(
        wire,
        tools=tuple(_tool(function, f"functions[{i}]") for i, function in enumerate(wire.functions)),
        tool_choice=choice,
        parallel_tool_calls=False,
    )


def _tool(function: FunctionParam, field: str) -> ToolParam:
    if not function.name:
        raise invalid(f"`{field}.name` is empty.", f"{field}.name")
    return ToolParam("function", function)


def _tool_choice(value: Any, functions: Sequence[FunctionParam]) -> Any:
    match value:
        case None | "auto" | "none":
            return value
        case {"name": str(name)} if name:
            if functions and all(function.name != name for function in functions):
                field = "function_call.name"
                raise invalid(f"`{field}` is {name[:80]!r}, which is not among the functions.", field)
            return {"type": "function", "function": {"name": name}}
        case dict():
            raise missing("function_call.name")
        case _:
            detail = "`function_call` must be 'none', 'auto', or an object with a name."
            raise invalid(detail, "function_call")


def _messages(messages: tuple[MessageParam, ...]) -> Iterator[MessageParam]:
    """Yield the messages with ids for legacy calls, and for their results the id of the call."""
    ids: dict[str, str] = {}
    for i, message in enumerate(messages):
        if message.role == "assistant" and (call := message.function_call) is not None:
            ids[call.name] = f"call_{i}"
            calls = (*(message.tool_calls or ()), ToolCallParam(ids[call.name], call))
            yield attrs.evolve(message, tool_calls=calls)
        elif message.role == "function":
            if message.name not in ids:
                field = f"messages[{i}].name"
                raise invalid(f"`{field}` names no function that was called before.", field)
            yield attrs.evolve(message, role="tool", tool_call_id=ids[message.name])
        else:
            yield message


def function_call(calls: tuple[ToolCall, ...]) -> dict[str, Any] | None:
    return {"name": calls[0].name, "arguments": calls[0].arguments} if calls else None


class FunctionStream(ChatStream):
    """Formats a streamed response with its call as a `function_call`."""

    def event(self, event: InferenceEvent) -> bytes:
        if not isinstance(event, ToolCallDelta):
            return super().event(event)
        if event.call:
            return b""
        name = b"" if event.name is None else b'"name":%b,' % json_string(event.name)
        arguments = json_string(event.arguments)
        call = b'{"content":null,"function_call":{%b"arguments":%b}}' % (name, arguments)
        return self._chunk(call, event.index)

    def _last_chunk(self, index: int, reason: bytes, stop: bytes) -> bytes:
        reason = b'"function_call"' if reason == b'"tool_calls"' else reason
        return super()._last_chunk(index, reason, stop)
