"""From events to the wire: the chunks of a streamed raw completion (OpenAI's `text_completion`)."""

from __future__ import annotations

from greenroom.http.answering.json_encoding import json_ascii, json_string
from greenroom.http.openai.logprobs import CompletionLogprobs
from greenroom.http.openai.stream import OpenAIStream
from greenroom.schemas.events import Failed, Finished, InferenceEvent, TextDelta


class CompletionStream(OpenAIStream):
    """Formats one streamed answer, which has one choice or several for every prompt.

    Args:
        answer_id: `cmpl-…`, the same in every chunk.
        created: Unix time in seconds.
        include_usage: The client asked for a usage chunk at the end.
        echoes: What each choice begins with: its prompt if the client wants that back, else nothing.
        choices: Of each prompt.
    """

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        echoes: tuple[str, ...],
        *,
        choices: int = 1,
        include_usage: bool = False,
    ) -> None:
        super().__init__(
            "text_completion",
            answer_id,
            model,
            created,
            streams=len(echoes),
            choices=choices,
            include_usage=include_usage,
        )
        self._echoes = echoes
        self._scores = [CompletionLogprobs(len(echo)) for echo in echoes]

    def opening(self) -> bytes:
        """The prompts, if the client wants them back."""
        return b"".join(self._chunk(i, echo) for i, echo in enumerate(self._echoes) if echo)

    def keep_alive(self) -> bytes:
        """A real chunk that says nothing: some clients choke on comments."""
        return self._chunk(0, "")

    def event(self, event: InferenceEvent) -> bytes:
        """What the client is told about an event; nothing for those that this protocol does not know."""
        match event:
            case TextDelta(text, index, scores):
                said = json_ascii(self._scores[index].add(scores)) if scores else b"null"
                return self._chunk(index, text, logprobs=said)
            case Finished():
                return self._ending(event)
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def _chunk(self, index: int, text: str, reason: bytes = b"null", logprobs: bytes = b"null") -> bytes:
        choice = b'"choices":[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]' % (
            index,
            json_string(text),
            logprobs,
            reason,
        )
        return self._head + choice + self._usage + b"}\n\n"

    def _last_chunk(self, index: int, reason: bytes) -> bytes:
        return self._chunk(index, "", reason)
