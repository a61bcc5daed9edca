"""Chunks of a streamed chat response (OpenAI's `chat.completion.chunk`)."""

from __future__ import annotations

from greenroom.http.answering.streaming.waiting_news import news_members
from greenroom.http.answering.tools.text_input import TextInputReader
from greenroom.http.encoding.json_encoding import json_string
from greenroom.http.openai.text.chunk_stream import ChunkStream
from greenroom.http.openai.text.logprobs import chat_logprobs
from greenroom.schemas.events.events import (
    InferenceEvent,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)

ROLE = b'{"role":"assistant","content":"","refusal":null}'
EMPTY = b'{"content":""}'


class ChatStream(ChunkStream):
    """Formats one streamed response.

    The constant parts of a chunk are encoded once; only the delta is encoded per event.

    Args:
        answer_id: Id of the response, `chatcmpl-…`, the same in every chunk.
        created: Unix time in seconds.
        choices: Number of choices that are streamed concurrently.
        include_usage: True if the client requested a usage chunk at the end.
        with_progress: True if the client requested every step of prefill, in llama.cpp's fields.
        with_status: True if the client requested news while it waits.
        custom: Names of the custom tools.
    """

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
    ) -> None:
        super().__init__(
            "chat.completion.chunk",
            answer_id,
            model,
            created,
            choices=choices,
            choices_per_prompt=choices,
            include_usage=include_usage,
            with_status=with_status or with_progress,
        )
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
        """Return the first chunk of every choice, which contains the role."""
        return b"".join(self._chunk(ROLE, index) for index in range(len(self._choice_heads)))

    def event(self, event: InferenceEvent) -> bytes:
        """Return the chunks for an event."""
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
