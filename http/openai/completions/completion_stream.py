"""Chunks of a streamed text completion (OpenAI's `text_completion`)."""

from __future__ import annotations

from greenroom.http.encoding.json_encoding import json_ascii, json_string
from greenroom.http.openai.text.chunk_stream import ChunkStream
from greenroom.http.openai.text.logprobs import CompletionLogprobs
from greenroom.schemas.events.events import InferenceEvent, PromptText, TextDelta


class CompletionStream(ChunkStream):
    """Formats one streamed response with one or several choices per prompt.

    Args:
        answer_id: Id of the response, `cmpl-…`, the same in every chunk.
        created: Unix time in seconds.
        choices: Number of choices of all prompts.
        choices_per_prompt: Number of choices of each prompt.
        include_usage: True if the client requested a usage chunk at the end.
        with_status: True if the client requested news while it waits.
    """

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        *,
        choices: int = 1,
        choices_per_prompt: int = 1,
        include_usage: bool = False,
        with_status: bool = False,
    ) -> None:
        super().__init__(
            "text_completion",
            answer_id,
            model,
            created,
            choices=choices,
            choices_per_prompt=choices_per_prompt,
            include_usage=include_usage,
            with_status=with_status,
        )
        self._logprobs = [CompletionLogprobs() for _ in range(choices)]

    def opening(self) -> bytes:
        """Return no bytes: the first chunk is sent with the first text."""
        return b""

    def event(self, event: InferenceEvent) -> bytes:
        """Return the chunks for an event."""
        if self._with_status:
            self._news.record(event)
        match event:
            case TextDelta(text, index, logprobs):
                encoded = json_ascii(self._logprobs[index].add(logprobs)) if logprobs else b"null"
                return self._chunk(index, text, logprobs=encoded)
            case PromptText(text, index, first, logprobs):
                encoded = json_ascii(self._logprobs[index].add(logprobs, first))
                return self._chunk(index, text, logprobs=encoded)
            case _:
                return super().event(event)

    def _empty_chunk(self) -> bytes:
        return self._chunk(0, "")

    def _chunk(self, index: int, text: str, reason: bytes = b"null", logprobs: bytes = b"null") -> bytes:
        choice = b'"choices":[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]' % (
            index,
            json_string(text),
            logprobs,
            reason,
        )
        return self._head + choice + self._usage + b"}\n\n"

    def _last_chunk(self, index: int, reason: bytes, stop: bytes) -> bytes:
        return self._chunk(index, "", reason + b',"stop_reason":' + stop)
