"""From events to the wire: the chunks of a streamed chat (OpenAI's `chat.completion.chunk`)."""

from __future__ import annotations

import attrs

from greenroom.http.logprob_text import chat_logprobs
from greenroom.http.problem_documents import openai_error
from greenroom.http.sse_text import DONE, json_string, json_text, system_fingerprint
from greenroom.schemas.events import (
    Failed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.openai_responses import usage_body
from greenroom.schemas.problems import Problem

ROLE = b'{"role":"assistant","content":"","refusal":null}'
NOTHING = b'{"content":""}'


class ChatStream:
    """Formats one streamed answer.

    All that is the same in every chunk is made once; per event only the delta is encoded.

    Args:
        answer_id: `chatcmpl-…`, the same in every chunk.
        created: Unix time in seconds.
        choices: How many answers are streamed side by side.
        include_usage: The client asked for a usage chunk at the end.
        with_reasoning_copy: Say a thought under `reasoning` too: clients are split over the name.
    """

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        *,
        choices: int = 1,
        include_usage: bool = False,
        with_reasoning_copy: bool = True,
    ) -> None:
        self.finished = False
        self._include_usage = include_usage
        self._copy = with_reasoning_copy
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
            b'"system_fingerprint":%b,'
            % (json_string(answer_id), created, json_string(model), json_string(system_fingerprint()))
        )
        self._befores = [self._head + b'"choices":[{"index":%d,"delta":' % i for i in range(choices)]
        self._ends: list[Finished] = []
        usage = b',"usage":null' if include_usage else b""
        self._after = b',"logprobs":null,"finish_reason":null}]' + usage + b"}\n\n"
        self._after_scores = b',"logprobs":%b,"finish_reason":null}]' + usage + b"}\n\n"
        self._after_last = b',"logprobs":null,"finish_reason":%b}]' + usage + b"}\n\n"

    def opening(self) -> bytes:
        """The first chunk of every choice, which names the role."""
        return b"".join(self._chunk(ROLE, index) for index in range(len(self._befores)))

    def keep_alive(self) -> bytes:
        """A real chunk that says nothing: some clients choke on comments."""
        return self._chunk(NOTHING)

    def event(self, event: GenerationEvent) -> bytes:
        """What the client is told about an event; nothing for those that this protocol does not know."""
        match event:
            case TextDelta(text, index, scores):
                delta = b'{"content":%b}' % json_string(text)
                if scores:
                    return self._befores[index] + delta + self._after_scores % chat_logprobs(scores)
                return self._chunk(delta, index)
            case ReasoningDelta(text, index):
                return self._chunk(self._reasoning(json_string(text)), index)
            case ToolCallDelta():
                return self._chunk(b'{"content":null,"tool_calls":[%b]}' % _call(event), event.index)
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

    def _chunk(self, delta: bytes, index: int = 0) -> bytes:
        return self._befores[index] + delta + self._after

    def _reasoning(self, text: bytes) -> bytes:
        if self._copy:
            return b'{"content":null,"reasoning_content":%b,"reasoning":%b}' % (text, text)
        return b'{"content":null,"reasoning_content":%b}' % text

    def _ending(self, event: Finished) -> bytes:
        self._ends.append(event)
        ending = self._befores[event.index] + b"{}" + self._after_last % json_string(finish_reason(event))
        if len(self._ends) < len(self._befores):
            return ending
        self.finished = True
        if self._include_usage:
            usage = json_text(attrs.asdict(usage_body(self._ends, len(self._befores))))
            ending += self._head + b'"choices":[],"usage":%b}\n\n' % usage
        return ending + DONE


def finish_reason(event: Finished) -> str:
    """Why it ended, in OpenAI's words."""
    return "stop" if event.reason == "cancelled" else event.reason


def _call(event: ToolCallDelta) -> bytes:
    arguments = json_string(event.arguments)
    if event.id is None:
        return b'{"index":%d,"function":{"arguments":%b}}' % (event.call, arguments)
    # Clients concatenate what repeats, so id and name are said once.
    return b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}' % (
        event.call,
        json_string(event.id),
        json_string(event.name or ""),
        arguments,
    )
