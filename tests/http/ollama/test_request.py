"""Conversion of Ollama's requests, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.ollama.request import parse_chat, parse_generate
from greenroom.schemas.messages.messages import ReasoningSettings, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.wire.ollama import OLLAMA, ChatRequest, GenerateRequest
from greenroom.schemas.wire.wire import structure

USER = {"role": "user", "content": "a"}


def parsed(**body: Any) -> InferenceRequest:
    body = {"model": "m", "messages": [USER], **body}
    request = parse_chat(structure(body, ChatRequest, OLLAMA), body, "r")
    assert request is not None
    return request


def chat(**body: Any) -> ChatInput:
    asked = parsed(**body).input
    assert isinstance(asked, ChatInput)
    return asked


def called(*names: str, **ids: str) -> dict[str, Any]:
    calls = [
        {"function": {"name": name, "arguments": {"n": i}}} | ({"id": ids[name]} if name in ids else {})
        for i, name in enumerate(names)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def test_results_without_ids_answer_the_calls_in_their_order() -> None:
    results: list[dict[str, Any]] = [
        {"role": "tool", "tool_name": "b", "content": "1"},
        {"role": "tool", "tool_name": "a", "content": "2"},
        {"role": "tool", "content": "3"},
    ]
    messages = chat(messages=[USER, called("a", "b", "a"), *results]).messages
    ids = [call.id for call in messages[1].tool_calls]
    assert len(set(ids)) == 3
    assert [message.tool_call_id for message in messages[2:]] == [ids[1], ids[0], ids[2]]
    assert [call.arguments for call in messages[1].tool_calls] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']


def test_results_of_calls_that_were_cut_off_are_text() -> None:
    results = [
        {"role": "tool", "tool_name": "b", "content": "1"},
        {"role": "tool", "tool_call_id": "gone", "content": "2"},
    ]
    messages = chat(messages=[results[0], USER, results[1], called("a"), *results]).messages
    assert [(message.role, message.text) for message in messages] == [
        ("user", "Result of b:\n1"),
        ("user", "a"),
        ("user", "Result:\n2"),
        ("assistant", ""),
        ("user", "Result of b:\n1"),
        ("tool", "2"),
    ]
    assert messages[-1].tool_call_id == messages[3].tool_calls[0].id


def test_a_call_may_have_no_arguments() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": None}}]}
    assert chat(messages=[USER, call]).messages[1].tool_calls[0].arguments == "{}"


def test_ids_of_clients_that_know_them_are_kept() -> None:
    result = {"role": "tool", "tool_call_id": "x", "content": "1"}
    messages = chat(
        messages=[USER, called("a", "b", a="x"), result, {"role": "tool", "content": "2"}]
    ).messages
    calls = [call.id for call in messages[1].tool_calls]
    assert calls[0] == "x"
    assert [message.tool_call_id for message in messages[2:]] == calls


@pytest.mark.parametrize(
    ("think", "thinking"),
    [
        (None, ReasoningSettings()),
        (True, ReasoningSettings(enabled=True)),
        (False, ReasoningSettings(enabled=False)),
        ("high", ReasoningSettings(enabled=True, effort="high")),
    ],
)
def test_thinking_is_switched(think: Any, thinking: ReasoningSettings) -> None:
    assert chat(think=think).thinking == thinking


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({"num_predict": -1, "seed": -1, "num_ctx": 8, "mystery": {}}, {}),
        ({"num_predict": 0, "seed": 0}, {"seed": 0}),
        ({"num_predict": 5, "seed": 3}, {"max_tokens": 5, "seed": 3}),
        ({"repeat_penalty": 1.5, "repeat_last_n": 64}, {"repetition_penalty": 1.5}),
        ({"repeat_penalty": 1.5, "repeat_last_n": 0}, {}),
        ({"stop": ["a"], "typical_p": 1.0, "mirostat": 0}, {"stop": ("a",)}),
        ({"temperature": 2}, {"temperature": 2.0}),
        ({"temperature": 5}, {"temperature": 5.0}),
        ({"temperature": 1e300}, {"temperature": 100.0}),
        (None, {}),
    ],
)
def test_options_are_our_parameters(options: Any, overrides: dict[str, Any]) -> None:
    assert parsed(options=options).overrides == overrides


def test_a_prompt_is_a_conversation_of_one_message() -> None:
    body = {"model": "m:latest", "prompt": "a", "system": "b", "logprobs": True, "top_logprobs": 2}
    request = parse_generate(structure(body, GenerateRequest, OLLAMA), body, "r")
    assert request is not None
    assert isinstance(request.input, ChatInput)
    assert [(message.role, message.content) for message in request.input.messages] == [
        ("system", (TextPart("b"),)),
        ("user", (TextPart("a"),)),
    ]
    assert (request.key.model, request.overrides) == ("m:latest", {"logprobs": True, "top_logprobs": 2})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "function", "content": "a"}]}, "messages[0].role"),
        ({"format": "yaml"}, "format"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"options": {"num_predict": "many"}}, "options.num_predict"),
        ({"options": [1]}, "options"),
        ({"options": {"typical_p": 0.5}}, "options.typical_p"),
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"options": {"temperature": True}}, "options.temperature"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parsed(**body)
    assert (caught.value.problem.status, caught.value.problem.param) == (400, param)


@pytest.mark.parametrize("field", ["raw", "suffix"])
@pytest.mark.parametrize("think", [True, "low"])
def test_thoughts_need_a_template(field: str, think: Any) -> None:
    body = {"model": "m", "prompt": "a", field: True if field == "raw" else "b", "think": think}
    with pytest.raises(ProblemError) as caught:
        parse_generate(structure(body, GenerateRequest, OLLAMA), body, "r")
    assert caught.value.problem.param == "think"
    body["think"] = False
    assert parse_generate(structure(body, GenerateRequest, OLLAMA), body, "r") is not None
