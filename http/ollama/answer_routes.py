"""Routes `POST /api/chat` and `POST /api/generate`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import attrs
from quart import Blueprint, Response

from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting import STEPS, CollectedChoice, step_of, steps_of
from greenroom.http.answering.current_request import request_client, request_id
from greenroom.http.answering.event_stream import TellsNews
from greenroom.http.answering.explanation_body import explanation_body
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, JSON, LINES, described
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.answering.server_tools import ServerFinder
from greenroom.http.encoding.encoding import finite_logprob, json_bytes, timestamp
from greenroom.http.ollama.request import (
    UNSUPPORTED,
    UNSUPPORTED_IN_GENERATE,
    load_or_unload,
    parse_chat,
    parse_generate,
)
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.events.result_events import ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.messages import JsonObject, ToolCall
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem
from greenroom.schemas.wire.ollama import OLLAMA, ChatRequest, GenerateRequest


def answer_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("ollama answers", __name__)

    async def respond(
        kind: Kind, wire: ChatRequest | GenerateRequest, asked: InferenceRequest | None
    ) -> Response:
        if asked is None:
            reason = await load_or_unload(services.refs.pool, wire.model, wire.keep_alive)
            return json_response(answer_body(kind, wire.model, Piece(), {"done_reason": reason}))
        formatter = AnswerFormatter(kind, wire.model)
        stream = wire.stream is not False
        loop = ServerFinder(services).of_metadata(wire.metadata) if isinstance(wire, ChatRequest) else None
        return await answer_request(services, [asked], formatter, stream=stream, loop=loop)

    @routes.post("/api/chat")
    @described(
        "Answer a chat, load a model or unload it",
        body=ChatRequest,
        converter=OLLAMA,
        media=(JSON, LINES),
        problems=(409, *ANSWERED_BY_A_MODEL),
    )
    async def chat() -> Response:
        parse = partial(parse_chat, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(
            ChatRequest, OLLAMA, UNSUPPORTED, parse, files=True, adapts=True
        )
        return await respond("chat", wire, asked)

    @routes.post("/api/generate")
    @described(
        "Continue a text, load a model or unload it",
        body=GenerateRequest,
        converter=OLLAMA,
        media=(JSON, LINES),
        problems=(409, *ANSWERED_BY_A_MODEL),
    )
    async def generate() -> Response:
        parse = partial(parse_generate, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(
            GenerateRequest, OLLAMA, UNSUPPORTED_IN_GENERATE, parse, files=True, adapts=True
        )
        return await respond("generate", wire, asked)

    return routes


NDJSON = "application/x-ndjson"


@attrs.frozen
class AnswerFormatter:
    """Formats the response to one request."""

    kind: Kind
    name: str

    def stream(self, _model: str) -> AnswerStream:
        return AnswerStream(self.kind, self.name)

    def whole(self, _model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        [choice] = choices
        answer = choice.text, choice.reasoning, choice.tool_calls, choice.logprobs
        piece = Piece(*answer, steps=steps_of(choice.parts))
        return answer_body(self.kind, self.name, piece, ending_of(choice.finished, choice.dropped_messages))


_AROUND_TEXT: dict[Kind, tuple[bytes, bytes]] = {
    "chat": (b'","message":{"role":"assistant","content":', b'},"done":false}\n'),
    "generate": (b'","response":', b',"done":false}\n'),
}


class AnswerStream(TellsNews):
    """Formats one streamed response. A tool call is sent once complete, since its arguments are an object."""

    content_type = NDJSON

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__()
        self.finished = False
        self._kind = kind
        self._name = name
        self._call: ToolCall | None = None
        self._calls = 0
        self._dropped_messages = 0
        self._head = b'{"model":%b,"created_at":"' % json_bytes(name)
        self._before_text, self._tail = _AROUND_TEXT[kind]

    def opening(self) -> bytes:
        """Return no bytes: the first line carries the first text."""
        return b""

    def heartbeat(self) -> bytes:
        """Return a line without text, with news of the wait."""
        return self._line(Piece()).removesuffix(b"}\n") + self._news.members() + b"}\n"

    def event(self, event: InferenceEvent) -> bytes:
        self._news.record(event)
        match event:
            case TextDelta(text, logprobs=()) if self._call is None:
                return self._text_line(text)
            case TextDelta(text, _, logprobs):
                return self._complete_call() + self._line(Piece(text, logprobs=logprobs))
            case ReasoningDelta(text):
                return self._complete_call() + self._line(Piece(reasoning=text))
            case ToolCallDelta():
                return self._add_to_call(event)
            case Finished():
                self.finished = True
                return self._complete_call() + self._line(Piece(), ending_of(event, self._dropped_messages))
            case ToolsListed() | ServerCall() | ToolResult() if (step := step_of(event)) is not None:
                return self._complete_call() + self._line(Piece(steps=(step,)))
            case Admitted(dropped_messages=dropped):
                self._dropped_messages = dropped
                return b""
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def failure(self, problem: Problem) -> bytes:
        self.finished = True
        return json_bytes({"error": problem.detail}) + b"\n"

    def _add_to_call(self, delta: ToolCallDelta) -> bytes:
        if delta.id is None and self._call is not None:
            self._call = attrs.evolve(self._call, arguments=self._call.arguments + delta.arguments)
            return b""
        completed = self._complete_call()
        self._call = ToolCall(delta.id or "", delta.name or "", delta.arguments)
        return completed

    def _complete_call(self) -> bytes:
        if self._call is None:
            return b""
        call, self._call = self._call, None
        line = self._line(Piece(calls=(call,), first_call=self._calls))
        self._calls += 1
        return line

    def _text_line(self, text: str) -> bytes:
        """Return the same as `_line` for text alone, but faster: nearly every token needs one."""
        now = timestamp(time.time()).encode()
        return self._head + now + self._before_text + json_bytes(text) + self._tail

    def _line(self, piece: Piece, ending: dict[str, Any] | None = None) -> bytes:
        return json_bytes(answer_body(self._kind, self._name, piece, ending)) + b"\n"


Kind = Literal["chat", "generate"]


@attrs.frozen
class Piece:
    """A part of a response: text, reasoning and tool calls."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    logprobs: Sequence[TokenLogprob] = ()
    first_call: int = 0
    steps: Sequence[JsonObject] = ()


def answer_body(kind: Kind, model: str, piece: Piece, ending: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return one line of a response, or a complete response. `ending`: additional fields of the last line
    (`ending_of`); None for other lines.
    """
    body: dict[str, Any] = {"model": model, "created_at": timestamp(time.time())}
    said: dict[str, Any] = {"role": "assistant", "content": piece.text} if kind == "chat" else {}
    if piece.reasoning:
        said["thinking"] = piece.reasoning
    if piece.calls:
        said["tool_calls"] = [_tool_call(i, call) for i, call in enumerate(piece.calls, piece.first_call)]
    if piece.steps:
        said[STEPS] = list(piece.steps)
    body |= {"message": said} if kind == "chat" else {"response": piece.text, **said}
    if piece.logprobs:
        body["logprobs"] = list(map(_logprob, piece.logprobs))
    return body | {"done": ending is not None} | (ending or {})


def ending_of(finished: Finished, dropped_messages: int = 0) -> dict[str, Any]:
    """Return the finish reason, durations in nanoseconds, and token counts of a response. `dropped_messages`:
    number of oldest messages that were left out of the prompt; omitted if 0.
    """
    timing, usage = finished.timing, finished.usage
    dropped = {"dropped_messages": dropped_messages} if dropped_messages else {}
    explained = {} if finished.explanation is None else {"greenroom": explanation_body(finished.explanation)}
    return {
        "done_reason": "length" if finished.reason == "length" else "stop",
        "total_duration": nanoseconds(timing.queued + timing.prefill + timing.decode),
        "load_duration": nanoseconds(timing.queued),
        "prompt_eval_duration": nanoseconds(timing.prefill),
        "eval_duration": nanoseconds(timing.decode),
        "prompt_eval_count": usage.prompt,
        "eval_count": usage.generated,
        **dropped,
        **explained,
    }


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _tool_call(index: int, call: ToolCall) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": _arguments(call.arguments)}
    return {"id": call.id, "function": function}


def _arguments(text: str) -> dict[str, Any]:
    # Ollama's clients expect an object: anything else that the model wrote is wrapped in one.
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = text
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _logprob(entry: TokenLogprob) -> dict[str, Any]:
    top = [_token(token, value) for token, value in entry.top]
    return _token(entry.token, entry.logprob) | ({"top_logprobs": top} if top else {})


def _token(token: Token, logprob: float) -> dict[str, Any]:
    return {"token": token.text, "logprob": finite_logprob(logprob), "bytes": list(token.bytes)}
