"""Events of a streamed response, checked against the official types and against the whole response."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from openai import Omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from greenroom.http.answering.collecting import ChoiceCollector
from greenroom.http.answering.explanation_body import signed_reasoning
from greenroom.http.responses.response_object import ResponseEcho, ResponseHead, answered_members
from greenroom.http.responses.response_stream import ResponseStream
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import TextPart, Tool
from greenroom.schemas.problems import Problem, context_length_exceeded, internal_error
from greenroom.schemas.protocols.responses_protocol import Heartbeat, RunEnded, RunEvent, RunStarted
from greenroom.schemas.stored import StoredResponse
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING
from greenroom.tests.support.clients.response_events import read_events

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
HEAD = ResponseHead("resp_ab", "tiny", 1_000)
USAGE = Usage(prompt=10, generated=7, cached=4, reasoning=2)
TOOLS = [
    {"type": "function", "name": "look", "description": None, "parameters": {}, "strict": False},
    {"type": "custom", "name": "shell"},
]
STOP = Finished("stop", USAGE)
REPEATED = (
    "previous_response_id instructions tools tool_choice truncation parallel_tool_calls text top_p store "
    "presence_penalty frequency_penalty top_logprobs temperature reasoning max_output_tokens max_tool_calls "
    "background service_tier metadata safety_identifier prompt_cache_key"
)


def echo(**changed: Any) -> ResponseEcho:
    members: dict[str, Any] = {
        **dict.fromkeys(REPEATED.split()),
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


def sent(formatter: ResponseStream, events: Sequence[RunEvent]) -> bytes:
    return formatter.opening() + b"".join(map(formatter.event, events))


def kinds(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def whole_of(events: Sequence[InferenceEvent], repeated: ResponseEcho) -> dict[str, Any]:
    """Return the unstreamed response of the same events."""
    collector = ChoiceCollector()
    for event in events:
        collector.add(event)
    choice = collector.collected()
    assert choice is not None
    return {**answered_members(repeated, HEAD, choice, 1_005), **repeated.members}


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
    ToolCallDelta(1, "call_2", "shell", '{"input":"ls"}'),
    Finished("tool_calls", USAGE),
]


@pytest.mark.parametrize("failed", [False, True])
def test_what_this_server_does_itself_is_told_in_openais_types(failed: bool) -> None:
    own: list[InferenceEvent] = [
        Admitted(10),
        ToolsListed("toy", (Tool("add", "", {}),)),
        ToolsListed("gone", error="No such file"),
        ServerCall("call_1", "toy", "add", "{}"),
        ToolResult("call_1", (TextPart("5"),), failed=failed),
        TextDelta("Five."),
        ApprovalWanted("call_2", "toy", "add", "{}"),
        STOP,
    ]
    for event in read_events(sent(stream(), own)):
        EVENTS.validate_python(event, strict=True)
    Response.model_validate(whole_of(own, echo()), strict=True)


def test_the_events_come_in_the_order_of_the_specification() -> None:
    events = read_events(sent(stream(), ANSWER))
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
    whole = whole_of(ANSWER, echo(encrypts_reasoning=True))
    events = read_events(sent(stream(echo=echo(encrypts_reasoning=True)), ANSWER))
    assert events[-1]["response"] == whole
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_ab"}
    assert [item["id"] for item in done] == ["rs_ab_0", "msg_ab_1", "fc_ab_2", "ctc_ab_3"]
    assert signed_reasoning("", done[0]["encrypted_content"]) == "I should look."
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
    events = read_events(sent(stream(), [ReasoningDelta("hm"), TextDelta("One"), Finished("length", USAGE)]))
    assert kinds(events)[-1] == "incomplete"
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_an_answer_without_words_is_one_empty_message() -> None:
    events = read_events(sent(stream(), [TextDelta(" \n"), STOP]))
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
    events = read_events(sent(stream(), [TextDelta("One"), Failed(problem, USAGE)]))
    assert kinds(events)[-1] == "failed"
    response = events[-1]["response"]
    assert response["error"] == {"code": code, "message": problem.detail}
    assert response["output"][0]["content"][0]["text"] == "One"
    assert response["output"][0]["status"] == "incomplete"
    assert response["usage"]["input_tokens"] == 10


def test_a_cancelled_response_says_so() -> None:
    response = read_events(sent(stream(), [TextDelta("One"), Finished("cancelled", USAGE)]))[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("cancelled", None)


def test_the_first_events_wait_for_the_parameters_that_are_used() -> None:
    members = {**echo().members, "temperature": 1.0, "top_p": 1.0}
    used = GenerationParameters(temperature=0.25, top_p=0.5)
    waiting = QueueStatus("loading", 0, "tiny")
    formatter = stream(echo=ResponseEcho(members))
    assert formatter.opening() + formatter.event(waiting) == b""
    events = read_events(sent(formatter, [Admitted(10, parameters=used), TextDelta("a"), STOP]))
    told = [event["response"] for event in events if "response" in event]
    assert [(one["temperature"], one["top_p"]) for one in told] == [(0.25, 0.5)] * 3
    # A heartbeat must not wait for the parameters.
    early = stream(echo=ResponseEcho(members))
    assert b'"response.created"' in early.heartbeat()


def test_a_heartbeat_is_an_event_that_counts() -> None:
    formatter = stream()
    data = (
        formatter.opening() + formatter.heartbeat() + formatter.event(TextDelta("a")) + formatter.event(STOP)
    )
    assert kinds(read_events(data))[1:3] == ["in_progress", "in_progress"]


def test_heartbeats_tell_what_a_response_waits_for() -> None:
    formatter = stream()
    assert formatter.event(QueueStatus("queued", 3, "tiny")) == b""
    assert formatter.has_news
    data = formatter.heartbeat() + formatter.event(PromptProgress(5, 7, 3, 0.25)) + formatter.heartbeat()
    assert not formatter.has_news
    data += formatter.event(TextDelta("a")) + formatter.event(STOP)
    created, first, waiting, computed, *_ = read_events(data)
    assert kinds([created, first, waiting, computed]) == ["created", *["in_progress"] * 3]
    assert waiting["queue_status"]["position"] == 3
    assert waiting["response"] == first["response"]
    assert computed["prompt_progress"] == {"total": 7, "cache": 3, "processed": 5, "time_ms": 250}
    # In the log of a background response, heartbeats carry the news.
    members = {**echo().members, "background": True}
    log = [Admitted(3), Heartbeat(QueueStatus("queued", 3, "tiny")), RunStarted(), STOP]
    events = read_events(sent(stream(echo=ResponseEcho(members)), log))
    assert kinds(events)[:4] == ["created", "queued", "queued", "in_progress"]
    assert events[2]["queue_status"]["position"] == 3


def test_a_background_response_is_queued_first() -> None:
    members = {**echo().members, "background": True}
    events = read_events(sent(stream(echo=ResponseEcho(members)), [RunStarted(), STOP]))
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
    logged = read_events(sent(stream(), [*events, STOP]))
    deltas = [event for event in logged if event["type"].endswith("text.delta")]
    assert [entry["token"] for event in deltas for entry in event["logprobs"]] == ["On", "e"]
    [part] = logged[-1]["response"]["output"][0]["content"]
    assert [entry["logprob"] for entry in part["logprobs"]] == [-0.5, -0.5]


def test_pieces_are_padded_where_a_client_asks_for_it() -> None:
    texts = ["a", "abc", "a" * 40]
    data = sent(stream(echo=echo(obfuscates=True)), [*map(TextDelta, texts), STOP])
    deltas = [event for event in read_events(data) if event["type"].endswith("text.delta")]
    assert {len(event["delta"] + event["obfuscation"]) % 16 for event in deltas} == {0}


def test_an_echo_survives_the_store() -> None:
    asked = {"include": [ENCRYPTED_REASONING], "stream_options": {"include_obfuscation": True}}
    made = ResponseEcho({**echo().members, **asked}, encrypts_reasoning=True, obfuscates=True)
    kept = json.loads(json.dumps(whole_of([STOP], made)))
    assert attrs.asdict(ResponseEcho.of(kept)) == attrs.asdict(made)


def test_a_custom_tool_gets_the_text_out_of_its_arguments() -> None:
    fragments = ['{"inp', 'ut":"ls ', "-l\\u00", 'e9"', "}"]
    begun = ToolCallDelta(0, "call_1", "shell", fragments[0])
    calls: list[InferenceEvent] = [begun, *(ToolCallDelta(0, arguments=text) for text in fragments[1:])]
    answer = [*calls, Finished("tool_calls", USAGE)]
    events = read_events(sent(stream(), answer))
    deltas = [event["delta"] for event in events if event["type"].endswith("input.delta")]
    assert len(deltas) > 1
    assert "".join(deltas) == events[-3]["input"] == "ls -lé"
    assert events[-1]["response"]["output"] == whole_of(answer, echo())["output"]


def test_a_stored_response_ends_its_stream() -> None:
    body = json.dumps({"id": "resp_ab", "text": "a\u2028b"}, ensure_ascii=False)
    stored = StoredResponse("resp_ab", "", "tiny", "completed", 1_000, body)
    events = read_events(sent(stream(), [RunStarted(), TextDelta("One"), Heartbeat(), RunEnded(stored)]))
    assert kinds(events)[:2] == ["created", "in_progress"]
    assert kinds(events)[-3:] == ["content_part.done", "output_item.done", "completed"]
    assert events[-1]["response"] == json.loads(body)


@pytest.mark.parametrize(
    ("status", "last"), [("failed", "failed"), ("cancelled", "incomplete"), ("incomplete", "incomplete")]
)
def test_a_stored_response_ends_its_stream_as_it_ended(status: Any, last: str) -> None:
    stored = StoredResponse("resp_ab", "", "tiny", status, 1_000, "{}")
    assert kinds(read_events(sent(stream(), [TextDelta("One"), RunEnded(stored)])))[-1] == last


def test_what_was_left_out_of_the_prompt_is_told() -> None:
    events = read_events(sent(stream(), [Admitted(10, 3), STOP]))
    responses = [event["response"] for event in events if "response" in event]
    assert [response["dropped_messages"] for response in responses] == [3, 3, 3]


def logprob(text: str) -> TokenLogprob:
    return TokenLogprob(Token(text, text.encode()), -0.5, ())


def random_answer(source: random.Random) -> list[InferenceEvent]:
    """Return the events of a random answer, with parts in any order, some empty or blank."""
    events: list[InferenceEvent] = []
    calls = 0
    for _ in range(source.randrange(8)):
        match source.choice(("text", "thought", "function", "custom")):
            case "text":
                texts = [source.choice(("One", " two", "\n", " ", "…")) for _ in range(2)]
                events += [TextDelta(text, logprobs=(logprob(text),)) for text in texts]
            case "thought":
                events += [ReasoningDelta(source.choice(("hm", " so", "\n"))) for _ in range(2)]
            case kind:
                name, arguments = (
                    ("look", '{"at":1}') if kind == "function" else ("shell", '{"input":"l\\ns"}')
                )
                cut = source.randrange(len(arguments) + 1)
                begun = ToolCallDelta(calls, f"call_{calls}", name, arguments[:cut])
                events += [begun, ToolCallDelta(calls, arguments=arguments[cut:])]
                calls += 1
    return [*events, Finished(source.choice(("stop", "length", "tool_calls")), USAGE)]


@pytest.mark.parametrize("seed", range(60))
def test_any_answer_is_streamed_as_it_is_told_whole(seed: int) -> None:
    answer = random_answer(random.Random(seed))
    repeated = echo(encrypts_reasoning=bool(seed % 2))
    whole = whole_of(answer, repeated)
    events = read_events(sent(stream(echo=repeated), answer))
    assert events[-1]["response"] == whole
    client: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=Omit())
    for event in events:
        client.handle_event(EVENTS.validate_python(event))
    items = {item["id"]: item for item in whole["output"]}
    assert len(items) == len(whole["output"]) > 0
    assert [item["status"] for item in whole["output"][:-1]] == ["completed"] * (len(items) - 1)
    for event in events:
        if event["type"].endswith(".done") and "item_id" in event:
            assert (
                any(text_of_item(items[event["item_id"]]) == event.get(name) for name in TEXTS)
                or "part" in event
            )


TEXTS = ("text", "arguments", "input")


def text_of_item(item: dict[str, Any]) -> str:
    match item["type"]:
        case "message":
            return str(item["content"][0]["text"])
        case "reasoning":
            return str(item["summary"][0]["text"])
        case _:
            return str(item.get("arguments", item.get("input")))
