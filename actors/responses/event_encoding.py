"""Conversion of a run's events to JSON text and back, to stream a run that has ended or whose server has."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs

from greenroom.schemas.events.events import (
    Admitted,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.protocols.responses_protocol import Heartbeat, RunEvent, RunStarted

_PIECE = 500
"""Number of events encoded at once. The JSON encoder keeps the GIL, so a call must not take long."""


def encode_events(events: Iterable[RunEvent]) -> str:
    """Return events as a JSON array of short arrays, without data that the response itself contains."""
    rows = [row for event in events if (row := _row(event)) is not None]
    pieces = [
        json.dumps(rows[start : start + _PIECE], ensure_ascii=False, separators=(",", ":"))[1:-1]
        for start in range(0, len(rows), _PIECE)
    ]
    # Half a surrogate pair has no UTF-8 encoding, but JSON can escape it.
    return f"[{','.join(pieces)}]".encode("utf-8", "backslashreplace").decode()


def decode_events(text: str) -> list[RunEvent]:
    """Return the events encoded by `encode_events`."""
    return [_event(row) for row in json.loads(text)]


def _row(event: RunEvent) -> list[Any] | None:
    match event:
        case TextDelta(text, _, logprobs):
            return ["t", text, *([[_logprob_row(entry) for entry in logprobs]] if logprobs else [])]
        case ReasoningDelta(text):
            return ["r", text]
        case ToolCallDelta(call, None, _, arguments):
            return ["a", call, arguments]
        case ToolCallDelta(call, ident, name, arguments):
            return ["c", call, ident, name, arguments]
        case Admitted(prompt_tokens, dropped):
            return ["p", prompt_tokens, dropped]
        case RunStarted():
            return ["s"]
        case Heartbeat(None):
            return ["h"]
        case Heartbeat(QueueStatus() as status):
            return ["h", "q", attrs.asdict(status)]
        case Heartbeat(PromptProgress() as progress):
            return ["h", "p", attrs.asdict(progress)]
        case _:
            return None


def _event(row: list[Any]) -> RunEvent:
    match row:
        case ["t", text]:
            return TextDelta(text)
        case ["t", text, logprobs]:
            return TextDelta(text, logprobs=tuple(map(_logprob, logprobs)))
        case ["r", text]:
            return ReasoningDelta(text)
        case ["a", call, arguments]:
            return ToolCallDelta(call, arguments=arguments)
        case ["c", call, ident, name, arguments]:
            return ToolCallDelta(call, ident, name, arguments)
        case ["p", prompt_tokens, dropped]:
            return Admitted(prompt_tokens, dropped)
        case ["s"]:
            return RunStarted()
        case ["h"]:
            return Heartbeat()
        case ["h", "q", status]:
            models = {name: tuple(status[name]) for name in ("loading", "unloading")}
            return Heartbeat(QueueStatus(**{**status, **models}))
        case ["h", "p", progress]:
            return Heartbeat(PromptProgress(**progress))
    raise ValueError(f"no event: {row!r}")


def _logprob_row(entry: TokenLogprob) -> list[Any]:
    return [*_token_row(entry.token, entry.logprob), [_token_row(*other) for other in entry.top]]


def _token_row(token: Token, logprob: float) -> list[Any]:
    return [token.text, token.bytes.hex(), logprob]


def _logprob(row: list[Any]) -> TokenLogprob:
    *token, top = row
    return TokenLogprob(*_token(token), tuple(map(_token, top)))


def _token(row: list[Any]) -> tuple[Token, float]:
    text, written, logprob = row
    return Token(text, bytes.fromhex(written)), logprob
