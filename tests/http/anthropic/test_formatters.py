"""Answers on the wire, without a server: formatters tested against the types of Anthropic's client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message, ModelInfo

from greenroom.http.answering.collecting import ChoiceCollector, CollectedChoice
from greenroom.http.answering.explanation_body import signed_reasoning
from greenroom.http.anthropic.message_stream import PING, MessageFormatter, MessageStream
from greenroom.http.anthropic.models import AnthropicModelFormatter
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.events.result_events import ServerCall, ToolResult
from greenroom.schemas.messages.messages import TextPart
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import ProblemError, model_crashed
from greenroom.schemas.wire.anthropic import ANTHROPIC, MessagesRequest
from greenroom.schemas.wire.wire import structure
from greenroom.tests.support.clients.anthropic_clients import accumulated, body, events_of

FINISHED = Finished("stop", Usage(prompt=7, generated=5, cached=3, reasoning=2))
BEGINNING: list[InferenceEvent] = [QueueStatus("loading", 0, "m"), Admitted(7), PromptProgress(5, 7, 3)]
ANSWER: list[InferenceEvent] = [
    ReasoningDelta("so "),
    ReasoningDelta("what"),
    TextDelta("\n\n"),
    TextDelta('He said "hö"\n'),
    TextDelta("\u2028🎭"),
    FINISHED,
]
CALLS: list[InferenceEvent] = [
    ReasoningDelta("hm"),
    TextDelta("\n"),
    ReasoningDelta("oh"),
    TextDelta("\n"),
    ToolCallDelta(0, "call_1", "f"),
    ToolCallDelta(0, arguments='{"city": "Rö'),
    ToolCallDelta(0, arguments='m"}'),
    ToolCallDelta(1, "call_2", "g"),
    TextDelta(" "),
    TextDelta("Done."),
    Finished("tool_calls", Usage(7, 9)),
]


def formatter(**fields: Any) -> MessageFormatter:
    return MessageFormatter(structure(body(**fields), MessagesRequest, ANTHROPIC), "msg_1", "req_1")


def streamed(stream: MessageStream, events: list[InferenceEvent]) -> list[Any]:
    assert stream.opening() == b""
    return events_of(b"".join(map(stream.event, events)))


def collected(events: list[InferenceEvent]) -> list[CollectedChoice]:
    collector = ChoiceCollector()
    for event in events:
        collector.add(event)
    choice = collector.collected()
    assert choice is not None
    return [choice]


@pytest.mark.parametrize("display", ["summarized", "omitted"])
@pytest.mark.parametrize("answer", [ANSWER, CALLS])
def test_a_stream_is_the_whole_message(answer: list[InferenceEvent], display: str) -> None:
    asked = formatter(thinking={"type": "adaptive", "display": display})
    whole = asked.whole("m", collected(answer))
    message = accumulated(streamed(asked.stream("m"), [*BEGINNING, *answer]))
    assert message.to_dict(exclude_none=True) == Message.model_validate(whole).to_dict(exclude_none=True)
    [thought, *rest] = whole["content"]
    said = "so what" if answer is ANSWER else "hmoh"
    assert thought["thinking"] == ("" if display == "omitted" else said)
    assert signed_reasoning(thought["thinking"], thought["signature"]) == said
    if answer is ANSWER:
        # White space before a text belongs to it, but white space alone makes no text block.
        assert rest == [{"type": "text", "text": '\n\nHe said "hö"\n\u2028🎭'}]
        assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)
        assert whole["usage"] == {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 2},
        }
    else:
        assert rest == [
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"city": "Röm"}},
            {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
            {"type": "text", "text": " Done."},
        ]
        assert whole["stop_reason"] == "tool_use"


@pytest.mark.parametrize("arguments", ['{"a": 1}', "{a: 1}", ""])
def test_arguments_of_a_servers_call_are_streamed_as_the_whole_message_has_them(arguments: str) -> None:
    call, told = ServerCall("call_1", "toy", "add", arguments), ToolResult("call_1", (TextPart("5"),))
    answer: list[InferenceEvent] = [call, told, TextDelta("Five."), FINISHED]
    whole = formatter().whole("m", collected(answer))["content"]
    events = streamed(formatter().stream("m"), answer)
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas) or "{}") == whole[0]["input"]


def test_events_come_in_order_and_every_block_is_closed() -> None:
    kinds = [event["type"] for event in streamed(formatter().stream("m"), [*BEGINNING, *ANSWER])]
    assert kinds == [
        "message_start",
        *("content_block_start", *["content_block_delta"] * 3, "content_block_stop"),
        *("content_block_start", *["content_block_delta"] * 2, "content_block_stop"),
        "message_delta",
        "message_stop",
    ]


def test_a_stream_begins_with_what_its_prompt_costs() -> None:
    [start, *_] = streamed(formatter().stream("m"), [*BEGINNING, *ANSWER])
    assert start["message"]["content"] == []
    assert start["message"]["stop_reason"] is None
    usage = start["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (4, 3, 1)


def test_a_stream_that_waits_pings_and_begins_once_its_prompt_is_known() -> None:
    stream = formatter().stream("m")
    assert stream.heartbeat() == PING
    assert stream.event(Admitted(7)) == b""
    [start, ping] = events_of(stream.heartbeat())
    assert start["message"]["usage"]["input_tokens"] == 7
    assert ping == {"type": "ping"}
    assert stream.heartbeat() == PING
    assert stream.event(PromptProgress(5, 7, 3)) == b""
    [*_, last, _] = events_of(b"".join(map(stream.event, ANSWER)))
    assert (last["usage"]["input_tokens"], last["usage"]["cache_read_input_tokens"]) == (4, 3)


def test_pings_tell_what_the_client_waits_for() -> None:
    stream = formatter().stream("m")
    waits = QueueStatus("queued", 3, "m")
    assert stream.event(waits) + stream.event(Admitted(7)) == b""
    assert stream.has_news
    [ping] = events_of(stream.heartbeat())
    assert (ping["type"], ping["queue_status"]["position"]) == ("ping", 3)
    [start] = events_of(stream.event(PromptProgress(5, 7, 3, 0.25)))
    assert start["message"]["usage"]["cache_read_input_tokens"] == 3
    [ping] = events_of(stream.heartbeat())
    assert ping["prompt_progress"] == {"total": 7, "cache": 3, "processed": 5, "time_ms": 250}
    events_of(stream.event(TextDelta("a")))
    assert not stream.has_news
    assert stream.heartbeat() == PING


@pytest.mark.parametrize("answer", [[], [TextDelta("\n")]])
def test_an_empty_answer_has_a_block_too(answer: list[InferenceEvent]) -> None:
    events: list[InferenceEvent] = [*BEGINNING, *answer, FINISHED]
    asked = formatter()
    whole = asked.whole("m", collected(events))
    assert list(whole["content"]) == [{"type": "text", "text": ""}]
    message = accumulated(streamed(asked.stream("m"), events))
    assert [block.to_dict(exclude_none=True) for block in message.content] == list(whole["content"])


@pytest.mark.parametrize(
    ("finished", "reason"),
    [
        (Finished("stop", Usage(7, 5)), ("end_turn", None)),
        (Finished("stop", Usage(7, 5), stop="END"), ("stop_sequence", "END")),
        (Finished("length", Usage(7, 12)), ("max_tokens", None)),
        (Finished("length", Usage(7, 11)), ("model_context_window_exceeded", None)),
        (Finished("tool_calls", Usage(7, 5)), ("tool_use", None)),
        (Finished("cancelled", Usage(7, 5)), ("end_turn", None)),
    ],
)
def test_every_end_has_its_reason(finished: Finished, reason: tuple[str, str | None]) -> None:
    events: list[InferenceEvent] = [TextDelta("a"), finished]
    asked = formatter(max_tokens=12)
    whole = asked.whole("m", collected(events))
    assert (whole["stop_reason"], whole["stop_sequence"]) == reason
    message = accumulated(streamed(asked.stream("m"), events))
    assert (message.stop_reason, message.stop_sequence) == reason


def test_a_call_that_was_cut_has_no_input_and_does_not_break_a_stream() -> None:
    cut: list[InferenceEvent] = [
        ToolCallDelta(0, "call_1", "f"),
        ToolCallDelta(0, arguments='{"city": "R'),
        FINISHED,
    ]
    asked = formatter()
    assert asked.whole("m", collected(cut))["content"][0]["input"] == {}
    message = accumulated(streamed(asked.stream("m"), cut))
    assert message.content[0].to_dict()["input"] == {}


def test_a_failure_ends_the_stream_with_an_error() -> None:
    stream = formatter().stream("m")
    [*_, error] = streamed(stream, [*BEGINNING, TextDelta("a"), Failed(model_crashed("m"))])
    assert stream.finished
    assert error["error"]["type"] == "api_error"
    assert error["error"]["details"]["error_code"] == "model_crashed"
    assert error["request_id"] == "req_1"


def test_whoever_asks_for_a_diagnosis_is_told_that_there_is_none() -> None:
    asked = formatter(diagnostics={"previous_message_id": "msg_0"})
    unavailable = {"cache_miss_reason": {"type": "unavailable"}}
    assert asked.whole("m", collected(ANSWER))["diagnostics"] == unavailable
    assert accumulated(streamed(asked.stream("m"), ANSWER)).to_dict()["diagnostics"] == unavailable
    assert "diagnostics" not in formatter().whole("m", collected(ANSWER))


MODELS = [ModelDescription(f"m{i}", 1_700_000_000) for i in range(25)]


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ({}, range(20), True),
        ({"limit": "1000"}, range(25), False),
        ({"limit": "3", "after_id": "m1"}, range(2, 5), True),
        ({"after_id": "m19"}, range(20, 25), False),
        ({"limit": "3", "before_id": "m5"}, range(2, 5), True),
        ({"limit": "3", "before_id": "m2"}, range(2), False),
        ({"lifecycle": "deprecated,retired"}, range(0), False),
    ],
)
def test_models_come_in_pages(query: dict[str, str], ids: range, has_more: bool) -> None:
    page = AnthropicModelFormatter().listed(MODELS, {}, query)
    assert [model["id"] for model in page["data"]] == [f"m{i}" for i in ids]
    assert page["has_more"] is has_more
    ends = (page["data"][0]["id"], page["data"][-1]["id"]) if ids else (None, None)
    assert (page["first_id"], page["last_id"]) == ends
    for model in page["data"]:
        assert ModelInfo.model_validate(model).created_at.timestamp() == 1_700_000_000


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "²"}, {"after_id": "x"}, {"before_id": ""}]
)
def test_a_page_that_cannot_be_is_refused_by_name(query: dict[str, str]) -> None:
    with pytest.raises(ProblemError) as refused:
        AnthropicModelFormatter().listed(MODELS, {}, query)
    assert refused.value.problem.param == next(iter(query))
