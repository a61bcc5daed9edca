"""From events to the wire: the chunks of a streamed raw completion (OpenAI's `text_completion`)."""

from __future__ import annotations

import attrs

from greenroom.http.chat_stream import finish_reason
from greenroom.http.logprob_text import CompletionLogprobs
from greenroom.http.problem_documents import openai_error
from greenroom.http.sse_text import DONE, json_string, json_text, system_fingerprint
from greenroom.schemas.events import Failed, Finished, GenerationEvent, TextDelta
from greenroom.schemas.openai_responses import usage_body
from greenroom.schemas.problems import Problem


class CompletionStream:
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
        self.finished = False
        self._echoes = echoes
        self._scores = [CompletionLogprobs(len(echo)) for echo in echoes]
        self._ends: list[Finished] = []
        self._choices = choices
        self._include_usage = include_usage
        self._head = (
            b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,"system_fingerprint":%b,'
            % (json_string(answer_id), created, json_string(model), json_string(system_fingerprint()))
        )
        self._usage = b',"usage":null' if include_usage else b""

    def opening(self) -> bytes:
        """The prompts, if the client wants them back."""
        return b"".join(self._chunk(i, echo) for i, echo in enumerate(self._echoes) if echo)

    def keep_alive(self) -> bytes:
        """A real chunk that says nothing: some clients choke on comments."""
        return self._chunk(0, "")

    def event(self, event: GenerationEvent) -> bytes:
        """What the client is told about an event; nothing for those that this protocol does not know."""
        match event:
            case TextDelta(text, index, scores):
                said = json_text(self._scores[index].add(scores)) if scores else b"null"
                return self._chunk(index, text, logprobs=said)
            case Finished():
                return self._ending(event)
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def failure(self, problem: Problem) -> bytes:
        """The end of an answer that cannot be completed."""
        self.finished = True
        return b'data: {"error":%b}\n\n' % json_text(openai_error(problem)) + DONE

    def _chunk(self, index: int, text: str, reason: bytes = b"null", logprobs: bytes = b"null") -> bytes:
        choice = b'"choices":[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]' % (
            index,
            json_string(text),
            logprobs,
            reason,
        )
        return self._head + choice + self._usage + b"}\n\n"

    def _ending(self, event: Finished) -> bytes:
        self._ends.append(event)
        ending = self._chunk(event.index, "", json_string(finish_reason(event)))
        if len(self._ends) < len(self._echoes):
            return ending
        self.finished = True
        if self._include_usage:
            usage = json_text(attrs.asdict(usage_body(self._ends, self._choices)))
            ending += self._head + b'"choices":[],"usage":%b}\n\n' % usage
        return ending + DONE
