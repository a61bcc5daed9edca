"""Answers in Ollama's protocol, without a server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from greenroom.http.answering.collecting import ChoiceCollector
from greenroom.http.ollama.answer_routes import AnswerFormatter, Piece, answer_body
from greenroom.schemas.events.events import (
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Timing,
    Token,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.problems import model_crashed

LIKELY = TokenLogprob(Token("a", b"a"), -0.5, ((Token("a", b"a"), -0.5), (Token("b", b"b"), float("-inf"))))
EVENTS: list[InferenceEvent] = [
    ReasoningDelta("so"),
    TextDelta("Looking.", logprobs=(LIKELY,)),
    ToolCallDelta(0, "call_a", "weather"),
    ToolCallDelta(0, arguments='{"city": '),
    ToolCallDelta(0, arguments='"Rom"}'),
    ToolCallDelta(1, "call_b", "now", "{}"),
    ToolCallDelta(2, "call_c", "odd", "[1"),
    Finished("tool_calls", Usage(7, 5, cached=3), Timing(0.5, 0.25, 2.0)),
]


def lines(events: list[InferenceEvent], kind: Any = "chat") -> list[Any]:
    stream = AnswerFormatter(kind, "m:latest").stream("m")
    sent = stream.opening() + b"".join(map(stream.event, events))
    assert stream.finished
    return [json.loads(line) for line in sent.splitlines()]


def whole(events: list[InferenceEvent], kind: Any = "chat") -> dict[str, Any]:
    collector = ChoiceCollector()
    for event in events:
        collector.add(event)
    choice = collector.collected()
    assert choice is not None
    return AnswerFormatter(kind, "m:latest").whole("m", [choice])


@pytest.mark.parametrize("kind", ["chat", "generate"])
def test_lines_of_text_alone_are_like_all_others(kind: Any) -> None:
    texts = ['He said "sea"\n', "\u2028é🦊\ud83e", "\x00\\"]
    *pieces, _ = lines([*map(TextDelta, texts), Finished("stop", Usage(7, 3))], kind)
    expected = [answer_body(kind, "m:latest", Piece(text)) for text in texts]
    for piece, line in zip(pieces, expected, strict=True):
        assert list(piece) == list(line)
        assert {**piece, "created_at": ""} == {**line, "created_at": ""}
        assert datetime.fromisoformat(piece["created_at"]).tzinfo is UTC


def test_a_call_goes_out_when_it_is_complete() -> None:
    *pieces, last = lines(EVENTS)
    said = [piece["message"] for piece in pieces]
    assert [message.get("thinking") for message in said] == ["so", None, None, None, None]
    assert [message["content"] for message in said] == ["", "Looking.", "", "", ""]
    calls = [call for message in said for call in message.get("tool_calls", ())]
    assert calls == whole(EVENTS)["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [
        {"index": 0, "name": "weather", "arguments": {"city": "Rom"}},
        {"index": 1, "name": "now", "arguments": {}},
        {"index": 2, "name": "odd", "arguments": {"arguments": "[1"}},
    ]
    assert last["message"] == {"role": "assistant", "content": ""}


def test_the_last_line_says_what_it_took() -> None:
    *pieces, last = lines(EVENTS, "generate")
    figures = {
        "done": True,
        "done_reason": "stop",
        "total_duration": 2_750_000_000,
        "load_duration": 500_000_000,
        "prompt_eval_count": 7,
        "prompt_eval_duration": 250_000_000,
        "eval_count": 5,
        "eval_duration": 2_000_000_000,
    }
    assert figures.items() <= last.items()
    assert figures.items() <= whole(EVENTS, "generate").items()
    assert (last["model"], last["response"]) == ("m:latest", "")
    assert not any(piece["done"] for piece in pieces)


def test_logprobs_are_listed_token_by_token() -> None:
    [logprob] = lines(EVENTS)[1]["logprobs"]
    top = [{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -9999.0, "bytes": [98]}]
    assert logprob == {**top[0], "top_logprobs": top}
    assert whole(EVENTS)["logprobs"] == [logprob]


def test_a_failure_is_a_line_of_its_own() -> None:
    *_, last = lines([TextDelta("Loo"), Failed(model_crashed("m"))])
    assert last.keys() == {"error"}
