"""The events of a streamed response, held against the official types and against the whole answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from greenroom.http.answering.collected_answer import ChoiceCollector
from greenroom.http.answering.thought_signature import signed_thought
from greenroom.http.responses.response_object import (
    ECHOED,
    ResponseEcho,
    ResponseHead,
    answered_response,
)
from greenroom.http.responses.response_stream import DONE, ResponseStream
from greenroom.schemas.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.problems import Problem, context_length_exceeded, internal_error

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
HEAD = ResponseHead("resp_ab", "tiny", 1_000)
USAGE = Usage(prompt=10, generated=7, cached=4, reasoning=2)
TOOLS = [
    {"type": "function", "name": "look", "description": None, "parameters": {}, "strict": False},
    {"type": "custom", "name": "shell"},
]
STOP = Finished("stop", USAGE)


def echo(**changed: Any) -> ResponseEcho:
    members: dict[str, Any] = {
        **dict.fromkeys(ECHOED),
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "background": False,
        "metadata": {},
        "text": {"format": {"type": "text"}},
    }
    return ResponseEcho(members, **changed)


def stream(**options: Any) -> ResponseStream:
    return ResponseStream(options.pop("echo", echo()), HEAD, clock=lambda: 1_005.5, **options)


def sent(formatter: ResponseStream, events: Sequence[InferenceEvent]) -> bytes:
    return formatter.opening() + b"".join(map(formatter.event, events))


def read(data: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream; their names are their types, and [DONE] is the end."""
    *blocks, done, rest = data.split(b"\n\n")
    assert (done + b"\n\n", rest) == (DONE, b"")
    events = []
    for block in blocks:
        name, line = block.split(b"\n")
        event = json.loads(line.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def kinds(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


ANSWER: list[InferenceEvent] = [
    Admitted(10),
    ReasoningDelta("I should"),
    ReasoningDelta(" look."),
    TextDelta("\n\n"),
    TextDelta("One"),
    TextDelta(" moment…"),
    TextDelta("\n"),
    ToolCallDelta(0, "call_1", "look", '{"at":'),
    ToolCallDelta(0, arguments="1}"),
    TextDelta("\n"),
    ToolCallDelta(1, "call_2", "shell", "ls"),
    Finished("tool_calls", USAGE),
]


def test_the_events_come_in_the_order_of_the_specification() -> None:
    events = read(sent(stream(), ANSWER))
    assert kinds(events) == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.delta", "reasoning_summary_text.done"),
        *("reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.delta", "output_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done"),
        "output_item.done",
        "completed",
    ]
    for event in events:
        EVENTS.validate_python(event, strict=True)
    done = next(event for event in events if event["type"].endswith("arguments.done"))
    assert (done["name"], done["arguments"]) == ("look", '{"at":1}')
    assert all(
        event["logprobs"] == [] for event in events if event["type"].startswith("response.output_text")
    )


def test_a_stream_ends_with_the_whole_answer() -> None:
    collector = ChoiceCollector()
    for event in ANSWER:
        collector.add(event)
    choice = collector.collected()
    assert choice is not None
    whole = answered_response(echo(seals_thoughts=True), HEAD, choice, 1_005)
    events = read(sent(stream(echo=echo(seals_thoughts=True)), ANSWER))
    assert events[-1]["response"] == whole
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_ab"}
    assert [item["id"] for item in done] == ["rs_ab_0", "msg_ab_1", "fc_ab_2", "ctc_ab_3"]
    assert signed_thought("", done[0]["encrypted_content"]) == "I should look."
    Response.model_validate(whole, strict=True)
    assert len(whole) == 31
    assert whole["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 17,
    }


def test_an_answer_that_is_cut_ends_with_an_incomplete_item() -> None:
    events = read(sent(stream(), [ReasoningDelta("hm"), TextDelta("One"), Finished("length", USAGE)]))
    assert kinds(events)[-1] == "incomplete"
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_an_answer_without_words_is_one_empty_message() -> None:
    events = read(sent(stream(), [TextDelta(" \n"), STOP]))
    [item] = events[-1]["response"]["output"]
    assert item["content"] == [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (internal_error(), "server_error"),
        (context_length_exceeded(9, 8), "context_length_exceeded"),
        (Problem(400, "invalid_value", "No."), "invalid_prompt"),
    ],
)
def test_a_failure_says_why_and_what_there_was(problem: Problem, code: str) -> None:
    events = read(sent(stream(), [TextDelta("One"), Failed(problem, USAGE)]))
    assert kinds(events)[-1] == "failed"
    response = events[-1]["response"]
    assert response["error"] == {"code": code, "message": problem.detail}
    assert response["output"][0]["content"][0]["text"] == "One"
    assert response["output"][0]["status"] == "incomplete"
    assert response["usage"]["input_tokens"] == 10


def test_a_cancelled_response_says_so() -> None:
    response = read(sent(stream(), [TextDelta("One"), Finished("cancelled", USAGE)]))[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("cancelled", None)


def test_a_heartbeat_is_an_event_that_counts() -> None:
    formatter = stream()
    data = (
        formatter.opening() + formatter.heartbeat() + formatter.event(TextDelta("a")) + formatter.event(STOP)
    )
    assert kinds(read(data))[1:3] == ["in_progress", "in_progress"]


def test_a_background_response_is_queued_first() -> None:
    members = {**echo().members, "background": True}
    events = read(sent(stream(echo=ResponseEcho(members)), [STOP]))
    assert kinds(events)[:3] == ["created", "queued", "in_progress"]
    statuses = [event["response"]["status"] for event in events[:3]]
    assert statuses == ["queued", "queued", "in_progress"]


@pytest.mark.parametrize("after", [0, 5, 12, 99])
def test_a_client_that_comes_back_gets_the_rest(after: int) -> None:
    whole = sent(stream(), ANSWER)
    rest = sent(stream(starting_after=after), ANSWER)
    assert whole.endswith(rest)
    assert whole.count(b"event: ") - rest.count(b"event: ") == min(after + 1, whole.count(b"event: "))


def test_log_probabilities_stand_beside_their_tokens() -> None:
    entries = [TokenLogprob(Token(text, text.encode()), -0.5, ()) for text in ("On", "e")]
    events: list[InferenceEvent] = [TextDelta(entry.token.text, logprobs=(entry,)) for entry in entries]
    read_events = read(sent(stream(), [*events, STOP]))
    deltas = [event for event in read_events if event["type"].endswith("text.delta")]
    assert [entry["token"] for event in deltas for entry in event["logprobs"]] == ["On", "e"]
    [part] = read_events[-1]["response"]["output"][0]["content"]
    assert [entry["logprob"] for entry in part["logprobs"]] == [-0.5, -0.5]


def test_pieces_are_padded_where_a_client_asks_for_it() -> None:
    texts = ["a", "abc", "a" * 40]
    data = sent(stream(echo=echo(obfuscates=True)), [*map(TextDelta, texts), STOP])
    deltas = [event for event in read(data) if event["type"].endswith("text.delta")]
    assert {len(event["delta"] + event["obfuscation"]) % 16 for event in deltas} == {0}


def test_an_echo_survives_the_store() -> None:
    made = echo(seals_thoughts=True)
    collector = ChoiceCollector()
    collector.add(STOP)
    choice = collector.collected()
    assert choice is not None
    kept = json.loads(json.dumps(answered_response(made, HEAD, choice, 5)))
    assert attrs.asdict(ResponseEcho.of(kept, seals_thoughts=True)) == attrs.asdict(made)
