"""JSON documents of Ollama's responses to chats and completions."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Literal

import attrs

from greenroom.http.answering.explanation_body import explanation_body
from greenroom.http.encoding.json_encoding import finite_logprob
from greenroom.http.encoding.timestamps import timestamp
from greenroom.schemas.events.events import Finished, Timing, Token, TokenLogprob, Usage
from greenroom.schemas.messages.messages import ToolCall

Kind = Literal["chat", "generate"]


@attrs.frozen
class Piece:
    """A part of a response: text, reasoning and tool calls.

    Args:
        first_call: Index of its first call in the response.
    """

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    logprobs: Sequence[TokenLogprob] = ()
    first_call: int = 0


def answer_body(kind: Kind, model: str, piece: Piece, ending: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return one line of a response, or a complete response.

    Args:
        model: Model name from the client's request.
        ending: Additional fields of the last line (`ending_of`); None for other lines.
    """
    body: dict[str, Any] = {"model": model, "created_at": timestamp(time.time())}
    said: dict[str, Any] = {"role": "assistant", "content": piece.text} if kind == "chat" else {}
    if piece.reasoning:
        said["thinking"] = piece.reasoning
    if piece.calls:
        said["tool_calls"] = [_tool_call(i, call) for i, call in enumerate(piece.calls, piece.first_call)]
    body |= {"message": said} if kind == "chat" else {"response": piece.text, **said}
    if piece.logprobs:
        body["logprobs"] = list(map(_logprob, piece.logprobs))
    return body | {"done": ending is not None} | (ending or {})


def ending_of(finished: Finished, dropped_messages: int = 0) -> dict[str, Any]:
    """Return the finish reason, durations in nanoseconds, and token counts of a response.

    Args:
        dropped_messages: Number of oldest messages that were left out of the prompt; omitted if 0.
    """
    reason = "length" if finished.reason == "length" else "stop"
    dropped = {"dropped_messages": dropped_messages} if dropped_messages else {}
    explained = {} if finished.explanation is None else {"greenroom": explanation_body(finished.explanation)}
    counts = _durations(finished.timing) | _counts(finished.usage)
    return {"done_reason": reason, **counts, **dropped, **explained}


def _durations(timing: Timing) -> dict[str, int]:
    return {
        "total_duration": nanoseconds(timing.queued + timing.prefill + timing.decode),
        "load_duration": nanoseconds(timing.queued),
        "prompt_eval_duration": nanoseconds(timing.prefill),
        "eval_duration": nanoseconds(timing.decode),
    }


def _counts(usage: Usage) -> dict[str, int]:
    return {"prompt_eval_count": usage.prompt, "eval_count": usage.generated}


def nanoseconds(seconds: float) -> int:
    """Return a duration in nanoseconds, as Ollama writes it."""
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
