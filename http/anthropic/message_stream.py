"""Answers in Anthropic's form, streamed or whole: blocks, stop reason, usage and errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting import (
    AnswerPart,
    CalledTool,
    CollectedChoice,
    Reasoning,
    worded_parts,
)
from greenroom.http.answering.event_stream import TellsNews
from greenroom.http.answering.explanation_body import ReasoningSigner, explanation_body, sign
from greenroom.http.anthropic.messages_request import hides_reasoning
from greenroom.http.encoding.encoding import SERVER_SENT_EVENTS, json_ascii, json_string
from greenroom.http.encoding.problem_documents import WORTH_RETRYING
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.messages import JsonObject, TextPart, ToolCall
from greenroom.schemas.problems import Problem
from greenroom.schemas.wire.anthropic import MessageBody, MessagesRequest, UsageBody

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_TAIL = b"}}\n\n"


class MessageStream(TellsNews):
    """Formats one streamed response.

    The first event reports the cached part of the prompt, so it waits until that is known or a heartbeat is
    due. The constant part of a block's deltas is encoded once per block.

    Args:
        max_tokens: Limit on generated tokens, set by the client.
        hides_reasoning: True to send reasoning without its text.
        asked_to_cache: True if the client set `cache_control` anywhere.
    """

    content_type = SERVER_SENT_EVENTS

    def __init__(
        self,
        message: MessageBody,
        request_id: str,
        *,
        max_tokens: int,
        hides_reasoning: bool,
        asked_to_cache: bool = False,
    ) -> None:
        super().__init__()
        self.finished = False
        self._message = message
        self._request_id = request_id
        self._max_tokens = max_tokens
        self._hides_reasoning = hides_reasoning
        self._asked_to_cache = asked_to_cache
        self._prompt: int | None = None
        self._started = False
        self._blocks = 0
        self._open: str | None = None
        self._delta_head = b""
        self._signer = ReasoningSigner(hides_reasoning)
        self._white_space = ""
        self._running: dict[str, ServerCall] = {}

    def opening(self) -> bytes:
        return b""

    def heartbeat(self) -> bytes:
        """Return a ping with news of the wait, or behind the first event if the prompt's length is known."""
        waits = self._prompt is None or self._news.waits
        ping = PING.removesuffix(b"}\n\n") + self._news.members() + b"}\n\n"
        return ping if waits else self._start() + ping

    def failure(self, problem: Problem) -> bytes:
        self.finished = True
        return b"event: error\ndata: %b\n\n" % json_ascii(error_members(problem, self._request_id))

    def event(self, event: InferenceEvent) -> bytes:
        self._news.record(event)
        match event:
            case TextDelta(text):
                return self._text(text)
            case ReasoningDelta(text):
                return self._reasoning(text)
            case ToolCallDelta():
                return self._tool_call(event)
            case ServerCall():
                self._running[event.id] = event
                return b""
            case ToolResult() if (call := self._running.pop(event.id, None)) is not None:
                return self._called(call, event)
            case ToolsListed(error=error) if error:
                return self._text(f"{error}\n\n") + self._end_block()
            case Admitted(prompt_tokens):
                self._prompt = prompt_tokens
                return b""
            case PromptProgress(total=total, cached=cached):
                self._prompt = total
                return self._start(cached)
            case Finished():
                return self._finish(event)
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def _start(self, cached: int = 0) -> bytes:
        if self._started:
            return b""
        self._started = True
        # Clients expect at least one output token here; the last event has the true count.
        usage = usage_body(Usage(self._prompt or 0, 1, cached))
        message = message_members(attrs.evolve(self._message, usage=usage))
        return _event("message_start", {"message": message})

    def _text(self, text: str) -> bytes:
        if self._open != "text":
            text = self._white_space + text
            if not text.strip():
                self._white_space = text
                return b""
            return self._begin("text", text_block(""), b'"text_delta","text":') + self._delta(text)
        return self._delta(text)

    def _reasoning(self, text: str) -> bytes:
        begun = b""
        if self._open != "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            begun = self._begin("thinking", empty, b'"thinking_delta","thinking":')
            self._signer = ReasoningSigner(self._hides_reasoning)
        self._white_space = ""
        self._signer.add(text)
        return begun if self._hides_reasoning else begun + self._delta(text)

    def _tool_call(self, event: ToolCallDelta) -> bytes:
        begun = b""
        if event.id is not None:
            block = {"type": "tool_use", "id": tool_use_id(event.id), "name": event.name or "", "input": {}}
            begun = self._begin("tool_use", block, b'"input_json_delta","partial_json":')
        return begun + self._delta(event.arguments) if event.arguments else begun

    def _called(self, call: ServerCall, result: ToolResult) -> bytes:
        """Return the blocks of a call and its result; calls of one turn follow each other as they end."""
        block = mcp_use_block(call)
        sent = self._begin("mcp_tool_use", {**block, "input": {}}, b'"input_json_delta","partial_json":')
        # Not the text of the model, which may be no JSON.
        sent += self._delta(json.dumps(block["input"], ensure_ascii=False)) if block["input"] else b""
        return sent + self._begin("mcp_tool_result", mcp_result_block(result), b"")

    def _begin(self, kind: str, block: dict[str, Any], delta: bytes) -> bytes:
        ended = self._start() + self._end_block()
        index = self._blocks
        self._open, self._white_space = kind, ""
        self._delta_head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b'
            % (index, delta)
        )
        return ended + _event("content_block_start", {"index": index, "content_block": block})

    def _delta(self, text: str) -> bytes:
        return self._delta_head + json_string(text) + _TAIL

    def _end_block(self) -> bytes:
        if self._open is None:
            return b""
        index, ended = self._blocks, b""
        if self._open == "thinking":
            delta = {"type": "signature_delta", "signature": self._signer.signature()}
            ended = _event("content_block_delta", {"index": index, "delta": delta})
        self._open = None
        self._blocks += 1
        return ended + _event("content_block_stop", {"index": index})

    def _finish(self, event: Finished) -> bytes:
        self.finished = True
        self._prompt = event.usage.prompt
        begun = self._start(event.usage.cached)
        if not self._blocks and self._open is None:
            # Some clients treat a response without any block as lost.
            begun += self._begin("text", text_block(""), b'"text_delta","text":')
        reason, sequence = stop_reason(event, self._max_tokens)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = usage_members(event, asked_to_cache=self._asked_to_cache)
        return begun + self._end_block() + _event("message_delta", {"delta": delta, "usage": usage}) + _STOP


def message_members(message: MessageBody) -> dict[str, Any]:
    members = attrs.asdict(message)
    if message.diagnostics is None:
        del members["diagnostics"]
    return members


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json_ascii({"type": kind, **members}))


def answer_blocks(parts: Iterable[AnswerPart], *, hides_reasoning: bool) -> tuple[dict[str, Any], ...]:
    """Return the blocks of a response, at least one.

    Blank text is omitted: clients send blocks back, and Anthropic's API refuses text blocks that are empty.
    """
    blocks = [block for part in worded_parts(parts) for block in _part_blocks(part, hides_reasoning)]
    return tuple(blocks) or (text_block(""),)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use_id(call_id: str) -> str:
    return f"toolu_{call_id.removeprefix('call_')}"


def mcp_use_block(call: ServerCall) -> dict[str, Any]:
    named = {"type": "mcp_tool_use", "id": mcp_use_id(call.id), "name": call.name, "server_name": call.server}
    return {**named, "input": _arguments(call.arguments)}


def mcp_result_block(result: ToolResult) -> dict[str, Any]:
    content = [text_block(result.text)]
    ident = mcp_use_id(result.id)
    return {"type": "mcp_tool_result", "tool_use_id": ident, "is_error": result.failed, "content": content}


def mcp_use_id(call_id: str) -> str:
    return f"mcptoolu_{call_id.removeprefix('call_')}"


def _part_blocks(part: AnswerPart, hides_reasoning: bool) -> list[dict[str, Any]]:
    match part:
        case CalledTool(call, result):
            return [mcp_use_block(call), *([] if result is None else [mcp_result_block(result)])]
        case ToolsListed(error=error):
            # The protocol has no place for a lost list, and silence would look as if there were no tools.
            return [text_block(f"{error}\n\n")] if error else []
        case ApprovalWanted():
            return []
        case TextPart() | Reasoning() | ToolCall():
            return [_block(part, hides_reasoning)]


def _block(part: TextPart | Reasoning | ToolCall, hides_reasoning: bool) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return text_block(text)
        case Reasoning(text):
            signature = sign(text, hidden=hides_reasoning)
            return {"type": "thinking", "thinking": "" if hides_reasoning else text, "signature": signature}
        case ToolCall(call_id, name, arguments):
            return {
                "type": "tool_use",
                "id": tool_use_id(call_id),
                "name": name,
                "input": _arguments(arguments),
            }


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


NO_DIAGNOSIS = {"cache_miss_reason": {"type": "unavailable"}}
"""Reply to clients that ask why a prompt missed the cache: earlier prompts are not kept for comparison."""


@attrs.frozen
class MessageFormatter:
    """Formats the response to one request. `answer_id`: id of the response, `msg_…`; `asked_to_cache`: True
    if the client set `cache_control` anywhere.
    """

    wire: MessagesRequest
    answer_id: str
    request_id: str
    asked_to_cache: bool = False

    def stream(self, model: str) -> MessageStream:
        return MessageStream(
            MessageBody(self.answer_id, model, (), None, None, None, self._diagnostics()),
            self.request_id,
            max_tokens=self.wire.max_tokens,
            hides_reasoning=hides_reasoning(self.wire),
            asked_to_cache=self.asked_to_cache,
        )

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        [choice] = choices
        reason, sequence = stop_reason(choice.finished, self.wire.max_tokens)
        blocks = answer_blocks(choice.parts, hides_reasoning=hides_reasoning(self.wire))
        message = MessageBody(self.answer_id, model, blocks, reason, sequence, None, self._diagnostics())
        usage = usage_members(choice.finished, asked_to_cache=self.asked_to_cache)
        return {**message_members(message), "usage": usage}

    def _diagnostics(self) -> dict[str, Any] | None:
        return None if self.wire.diagnostics is None else NO_DIAGNOSIS


def stop_reason(finished: Finished, max_tokens: int) -> tuple[str, str | None]:
    """Return the stop reason, and the stop sequence if one ended the response. `max_tokens`: limit set by the
    client; a response that was cut off below it has filled the context window.
    """
    match finished.reason:
        case "length" if finished.limit:
            return "pause_turn", None
        case "tool_calls":
            return "tool_use", None
        case "length" if finished.usage.generated < max_tokens:
            return "model_context_window_exceeded", None
        case "length":
            return "max_tokens", None
        case "stop" if finished.stop is not None:
            return "stop_sequence", finished.stop
        case _:
            return "end_turn", None


def usage_members(finished: Finished, *, asked_to_cache: bool = False) -> dict[str, Any]:
    """Return the usage of a complete answer as a JSON-like object, with its explanation if there is one."""
    members = attrs.asdict(usage_body(finished.usage, asked_to_cache=asked_to_cache))
    if finished.explanation is None:
        return members
    return {**members, "greenroom": explanation_body(finished.explanation)}


def usage_body(usage: Usage, *, asked_to_cache: bool = False) -> UsageBody:
    """Return the token usage of a request, with prompt tokens split into input, cache writes and cache reads.

    Args:
        asked_to_cache: True if the client set `cache_control` anywhere. Prompts are always cached, but other
            clients see all computed tokens as input.
    """
    written = usage.written if asked_to_cache else 0
    return UsageBody(
        input_tokens=usage.prompt - usage.cached - written,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=usage.cached,
        output_tokens=usage.generated,
        output_tokens_details={"thinking_tokens": usage.reasoning},
    )


def asks_to_cache(body: JsonObject) -> bool:
    """Return whether a request sets `cache_control`, at the top level or in any block."""
    return any(each.get("cache_control") is not None for each in (body, *_blocks(body)))


def _blocks(body: JsonObject) -> Iterator[JsonObject]:
    waiting: list[Any] = [body.get("tools"), body.get("system"), body.get("messages")]
    while waiting:
        listed = waiting.pop()
        for block in listed if isinstance(listed, list) else ():
            if isinstance(block, dict):
                yield block
                waiting.append(block.get("content"))


_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_CODES = {"thread": "thread_unsupported_request"}
"""Unsupported parameter -> error code at which clients repeat the request without it."""


def error_members(problem: Problem, request_id: str | None) -> dict[str, Any]:
    code = problem.code
    if code == "unsupported_parameter":
        code = _CODES.get(problem.param or "", code)
    details = {"error_code": code, "param": problem.param}
    error = {"type": error_type(problem), "message": problem.detail, "details": details}
    return {"type": "error", "error": error, "request_id": request_id}


def error_type(problem: Problem) -> str:
    if problem.code in WORTH_RETRYING and problem.status == 503:
        return "overloaded_error"
    return _TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
