"""Requests and answers on the wire, without a server: pure functions against OpenAI's own types."""

from __future__ import annotations

import json
from typing import Any

import openai.types as wire_types
import openai.types.chat as chat_types
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from greenroom.http.answering.collected_answer import ChoiceCollector, CollectedChoice
from greenroom.http.answering.json_encoding import json_string
from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.guard.request_body import MAX_CONTAINERS, decode_json
from greenroom.http.openai.chat_formatter import ChatFormatter
from greenroom.http.openai.chat_request import parse_chat_request
from greenroom.http.openai.chat_stream import ChatStream
from greenroom.http.openai.completion_formatter import CompletionFormatter
from greenroom.http.openai.completion_stream import CompletionStream
from greenroom.http.openai.parameters import UNSUPPORTED_IN_CHAT, UNSUPPORTED_IN_COMPLETIONS
from greenroom.schemas.events import (
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
from greenroom.schemas.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.openai.chat import ChatRequest
from greenroom.schemas.openai.completions import CompletionRequest, Prompts
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.problems import ProblemError, model_crashed
from greenroom.schemas.requests import ChatInput, InferenceRequest
from greenroom.schemas.wire import structure

USER = {"role": "user", "content": "hi"}


def asked(*messages: Any, **fields: Any) -> InferenceRequest:
    """The neutral request for a body."""
    return parsed({"model": "m", "messages": list(messages), **fields})


def parsed(body: Any) -> InferenceRequest:
    """The neutral request for a whole body."""
    return parse_chat_request(structure(body, ChatRequest, OPENAI), body, "req_1")


def conversation(*messages: Any, **fields: Any) -> ChatInput:
    """Its input."""
    request = asked(*messages, **fields).input
    assert isinstance(request, ChatInput)
    return request


# -- from the wire ---------------------------------------------------------------------------------


def test_roles_parts_calls_and_results_arrive_whole() -> None:
    history = conversation(
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "name": "Ann",
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
                {"id": "call_2", "function": {"name": "g", "arguments": {"y": "é"}}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "1"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "reasoning": "why"},
    )
    assert history.messages == (
        Message("system", (TextPart("be brief"),)),
        Message("user", (TextPart("a"), TextPart("b")), name="Ann"),
        Message(
            "assistant",
            reasoning="hm",
            tool_calls=(ToolCall("call_1", "f", '{"x": 1}'), ToolCall("call_2", "g", '{"y": "é"}')),
        ),
        Message("tool", (TextPart("1"),), tool_call_id="call_1"),
        Message("assistant", (TextPart("no"),), reasoning="why"),
    )


def test_tools_arrive_with_their_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "weather", "description": "of a city", "parameters": schema, "strict": True}
    tools = [{"type": "function", "function": function}, {"type": "function", "function": {"name": "now"}}]
    offered = conversation(USER, tools=tools)
    assert offered.tools == (Tool("weather", "of a city", schema, True), Tool("now"))
    assert offered.tool_choice.mode == "auto"
    assert conversation(USER, tools=tools, tool_choice="none").tool_choice.mode == "none"


def test_parameters_arrive_under_their_neutral_names() -> None:
    request = asked(USER, temperature=0, top_p=0.5, top_k=3, min_p=0.1, stop="x", max_tokens=5)
    assert request.overrides == {
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "stop": ("x",),
        "max_tokens": 5,
    }
    assert asked(USER, stop=["a", "b"], max_tokens=5, max_completion_tokens=7).overrides == {
        "stop": ("a", "b"),
        "max_tokens": 7,
    }
    assert asked(USER, temperature=None, stop=None, max_tokens=None).overrides == {}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "high"}, {"enable_thinking": True, "reasoning_effort": "high"}),
        ({"reasoning": {"effort": "low"}}, {"enable_thinking": True, "reasoning_effort": "low"}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True, "style": 1}},
            {"enable_thinking": True, "style": 1},
        ),
    ],
)
def test_thinking_is_switched_in_every_way_that_clients_know(
    fields: dict[str, Any], options: dict[str, Any]
) -> None:
    assert conversation(USER, **fields).template_options == options


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [USER]}, "model"),
        ({"model": 1, "messages": [USER]}, "model"),
        ({"model": " ", "messages": [USER]}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": "hi"}, "messages"),
        ({"model": "m", "messages": {"role": "user"}}, "messages"),
        ({"model": "m", "messages": ["hi"]}, "messages[0]"),
        ({"model": "m", "messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"model": "m", "messages": [USER, {"role": "owner", "content": "hi"}]}, "messages[1].role"),
        ({"model": "m", "messages": [{"role": ["user"], "content": "hi"}]}, "messages[0].role"),
        ({"model": "m", "messages": [{"role": "user"}]}, "messages[0].content"),
        ({"model": "m", "messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"model": "m", "messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"model": "m", "messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
        (
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        (
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "smell"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {
                "model": "m",
                "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            },
            "messages[0].content[0]",
        ),
        ({"model": "m", "messages": [{"role": "tool", "content": "1"}]}, "messages[0].tool_call_id"),
        (
            {"model": "m", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages[0].tool_calls[0].id",
        ),
        (
            {"model": "m", "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {
                "model": "m",
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "a", "type": "custom", "function": {"name": "f"}}],
                    }
                ],
            },
            "messages[0].tool_calls[0].type",
        ),
        ({"model": "m", "messages": [USER], "stream": "yes"}, "stream"),
        ({"model": "m", "messages": [USER], "stream_options": True}, "stream_options"),
        ({"model": "m", "messages": [USER], "tools": {}}, "tools"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "function"}]}, "tools[0].function"),
        (
            {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": {"name": ""}}]},
            "tools[0].function.name",
        ),
        ({"model": "m", "messages": [USER], "temperature": 3}, "temperature"),
        ({"model": "m", "messages": [USER], "temperature": "warm"}, "temperature"),
        ({"model": "m", "messages": [USER], "top_p": 0}, "top_p"),
        ({"model": "m", "messages": [USER], "top_k": 2**70}, "top_k"),
        ({"model": "m", "messages": [USER], "max_tokens": 0}, "max_tokens"),
        ({"model": "m", "messages": [USER], "max_completion_tokens": True}, "max_completion_tokens"),
        ({"model": "m", "messages": [USER], "stop": [""]}, "stop"),
        ({"model": "m", "messages": [USER], "reasoning_effort": "heroic"}, "reasoning_effort"),
        ({"model": "m", "messages": [USER], "thinking": {"type": "maybe"}}, "thinking.type"),
        ({"model": "m", "messages": [USER], "chat_template_kwargs": []}, "chat_template_kwargs"),
        ([], None),
        ("text", None),
        (None, None),
    ],
)
def test_what_is_wrong_is_named(body: Any, param: str | None) -> None:
    with pytest.raises(ProblemError) as refused:
        parsed(body)
    assert refused.value.problem.status == 400
    assert refused.value.problem.param == param
    assert param is None or f"`{param}`" in refused.value.problem.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "a", "format": "mp3"}),
        ("prediction", {"type": "content", "content": ""}),
        ("web_search_options", {}),
        ("verbosity", "low"),
        ("service_tier", "flex"),
        ("store", True),
    ],
)
def test_a_parameter_that_is_not_honoured_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ProblemError) as refused:
        refuse_unsupported({"model": "m", name: value}, UNSUPPORTED_IN_CHAT)
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.param) == (400, "unsupported_parameter", name)


def test_neutral_values_and_unknown_fields_are_accepted() -> None:
    for table in (UNSUPPORTED_IN_CHAT, UNSUPPORTED_IN_COMPLETIONS):
        refuse_unsupported(dict.fromkeys(table), table)
        for name, neutral in table.items():
            for value in neutral:
                refuse_unsupported({name: value}, table)
    refuse_unsupported({"store": False, "vendor": object()}, UNSUPPORTED_IN_CHAT)
    assert conversation({**USER, "vendor": 1}, user="u", metadata={}, vendor=[1]).messages[0].text == "hi"


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_prompts_come_in_four_forms(prompt: Any, prompts: tuple[Any, ...]) -> None:
    assert structure({"model": "m", "prompt": prompt}, CompletionRequest, OPENAI).prompt.prompts == prompts


@pytest.mark.parametrize(
    "prompt", [None, 3, [], {}, [None], [1, "a"], [[1], "a", [None]], [True], [-1], ["a"] * 129]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ProblemError) as refused:
        structure({"model": "m", "prompt": prompt}, CompletionRequest, OPENAI)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "prompt")


# -- JSON that anybody may send --------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"a": NaN}', 400),
        (b'{"a": -Infinity}', 400),
        (b'{"a": 1e999}', 400),
        (b'{"a": ' + b"9" * 5000 + b"}", 400),
        (nested(65), 413),
        (nested(100_000), 413),
        (b"[" * 400_000, 413),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 413),
        (b"[" + b"[]," * MAX_CONTAINERS + b"[]]", 413),
    ],
)
def test_hostile_json_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(ProblemError) as refused:
        decode_json(data)
    assert refused.value.problem.status == status


def test_odd_json_is_read() -> None:
    assert decode_json(nested(64))
    assert decode_json(b'{"a": 1, "a": 2}') == {"a": 2}
    assert decode_json(b'{"a": "' + b"[{" * 1000 + b'"}') == {"a": "[{" * 1000}
    assert decode_json(b'{"a": ' + b"9" * 400 + b"}") == {"a": int("9" * 400)}
    assert decode_json(rb'{"\ud800": ["a\uDFFF", "\ud83d\ude00"]}') == {"\ufffd": ["a\ufffd", "\U0001f600"]}


# -- to the wire -----------------------------------------------------------------------------------

FINISHED = Finished("stop", Usage(prompt=7, generated=5, cached=3, reasoning=2))
ANSWER: list[InferenceEvent] = [
    QueueStatus("loading", 0, "m"),
    Admitted(7),
    PromptProgress(3, 7),
    ReasoningDelta("so "),
    ReasoningDelta("what"),
    TextDelta('He said "hö"\n'),
    TextDelta("\u2028🎭"),
    FINISHED,
]
CALLS: list[InferenceEvent] = [
    TextDelta("Looking."),
    ToolCallDelta(0, "call_a", "weather"),
    ToolCallDelta(0, arguments='{"city": '),
    ToolCallDelta(0, arguments='"Rom"}'),
    ToolCallDelta(1, "call_b", "now", "{}"),
    Finished("tool_calls", Usage(7, 5)),
]


def streamed(events: list[InferenceEvent], **options: Any) -> bytes:
    """What a client receives."""
    formatter = ChatStream("chatcmpl-1", "m", 123, **options)
    sent = formatter.opening() + b"".join(map(formatter.event, events))
    assert formatter.finished
    return sent


def complete(events: list[InferenceEvent]) -> dict[str, Any]:
    """What a client receives that does not want a stream."""
    collector = ChoiceCollector()
    for event in events:
        collector.add(event)
    choice = collector.collected()
    assert choice is not None
    return ChatFormatter(ChatRequest("m", ()), "chatcmpl-1", 1, 123).whole("m", [choice])


def chunks(sent: bytes) -> list[dict[str, Any]]:
    """The chunks in it; `[DONE]` is the last line, once."""
    lines = sent.split(b"\n\n")
    assert lines.pop() == b""
    assert lines.pop() == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def test_progress_is_told_to_whom_asks_for_it() -> None:
    progress = PromptProgress(processed=5, total=7, cached=3, seconds=0.0421)
    asked = chunks(streamed([progress, FINISHED], with_progress=True, include_usage=True))[1]
    assert asked["prompt_progress"] == {"total": 7, "cache": 3, "processed": 5, "time_ms": 42}
    assert asked["choices"][0]["delta"] == {"content": ""}
    assert asked["usage"] is None
    assert len(chunks(streamed([progress, FINISHED]))) == 2


def test_a_streamed_chat_field_by_field() -> None:
    first, *middle, last = chunks(streamed(ANSWER))
    for chunk in (first, *middle, last):
        assert set(chunk) == {"id", "object", "created", "model", "choices", "system_fingerprint"}
        assert (chunk["id"], chunk["object"], chunk["created"]) == (
            "chatcmpl-1",
            "chat.completion.chunk",
            123,
        )
        [choice] = chunk["choices"]
        assert set(choice) == {"index", "delta", "logprobs", "finish_reason"}
        assert (choice["index"], choice["logprobs"]) == (0, None)
        chat_types.ChatCompletionChunk.model_validate(chunk, strict=True)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [
        {"content": None, "reasoning_content": "so ", "reasoning": "so "},
        {"content": None, "reasoning_content": "what", "reasoning": "what"},
        {"content": 'He said "hö"\n'},
        {"content": "\u2028🎭"},
    ]
    assert {chunk["choices"][0]["finish_reason"] for chunk in (first, *middle)} == {None}
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "stop"


def test_usage_comes_in_a_chunk_of_its_own_for_those_who_ask() -> None:
    *others, last = chunks(streamed(ANSWER, include_usage=True))
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 2,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def test_tool_calls_say_id_and_name_once() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(streamed(CALLS))]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Rom"}'}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ]
    assert all("content" in delta for delta in deltas[:-1])


@pytest.mark.parametrize("events", [ANSWER, CALLS])
def test_openais_accumulator_reads_a_stream_as_the_whole_answer(events: list[InferenceEvent]) -> None:
    state: Any = ChatCompletionStreamState()
    for chunk in chunks(streamed(events)):
        state.handle_chunk(chat_types.ChatCompletionChunk.model_validate(chunk))
    whole = chat_types.ChatCompletion.model_validate_json(json.dumps(complete(events)), strict=True)
    from_stream = state.get_final_completion().choices[0]
    assert from_stream.finish_reason == whole.choices[0].finish_reason
    assert (from_stream.message.content or "") == (whole.choices[0].message.content or "")
    assert called(from_stream.message) == called(whole.choices[0].message)


def called(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]


def test_a_whole_chat_has_every_required_key() -> None:
    answer = complete(CALLS[1:])
    assert set(answer) >= {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
    [told] = answer["choices"]
    assert set(told) == {"index", "message", "finish_reason", "logprobs"}
    assert told["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": (),
        "tool_calls": (
            {
                "id": "call_a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Rom"}'},
            },
            {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ),
    }


def test_a_failure_is_told_and_then_done() -> None:
    formatter = ChatStream("chatcmpl-1", "m", 123)
    sent = formatter.event(TextDelta("a")) + formatter.event(Failed(model_crashed("m")))
    last = chunks(sent)[-1]
    assert last["error"]["code"] == "model_crashed"
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert formatter.finished


def test_keeping_alive_is_a_real_chunk_that_says_nothing() -> None:
    for formatter in (ChatStream("i", "m", 1), CompletionStream("i", "m", 1, ("",))):
        sent = formatter.heartbeat()
        assert sent.startswith(b"data: {")
        [choice] = json.loads(sent.removeprefix(b"data: "))["choices"]
        assert choice["finish_reason"] is None
        assert choice.get("text", choice.get("delta", {}).get("content")) == ""


def test_streamed_completions_index_their_prompts() -> None:
    formatter = CompletionStream("cmpl-1", "m", 123, ("to be", ""), include_usage=True)
    sent = formatter.opening()
    for event in (TextDelta(" or", 0), TextDelta("x", 1), Finished("stop", Usage(1, 2), index=1)):
        sent += formatter.event(event)
    assert not formatter.finished
    sent += formatter.event(Finished("length", Usage(3, 4), index=0))
    *told, usage = chunks(sent)
    for chunk in told:
        assert chunk["object"] == "text_completion"
        assert set(chunk["choices"][0]) == {"index", "text", "logprobs", "finish_reason"}
    assert [(c["choices"][0]["index"], c["choices"][0]["text"]) for c in told] == [
        (0, "to be"),
        (0, " or"),
        (1, "x"),
        (1, ""),
        (0, ""),
    ]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 10)


def test_whole_completions_have_a_choice_for_every_prompt() -> None:
    choices = [
        CollectedChoice(" or not", "", (), (), Finished("length", Usage(1, 2))),
        CollectedChoice("x", "", (), (), Finished("stop", Usage(3, 4))),
    ]
    wire = CompletionRequest("m", Prompts(("to be", "")))
    answer = CompletionFormatter(wire, "cmpl-1", ("to be", ""), 1, 123).whole("m", choices)
    read = wire_types.Completion.model_validate_json(json.dumps(answer), strict=True)
    assert [choice.text for choice in read.choices] == ["to be or not", "x"]
    assert answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["total_tokens"] == 10


@pytest.mark.parametrize("text", ["", 'a"b\\c', "\0\x1f\x7f", "é你🎭", "\x85\u2028\u2029", "\ud800 alone"])
def test_json_strings_survive_every_reader(text: str) -> None:
    encoded = json_string(text)
    assert json.loads(encoded) == text
    assert len(encoded.decode("utf-8").splitlines()) == 1
