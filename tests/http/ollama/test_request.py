"""From Ollama's bodies to the neutral request, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.ollama.request import parse_chat, parse_generate
from greenroom.schemas.messages import TextPart
from greenroom.schemas.ollama.converter import OLLAMA
from greenroom.schemas.ollama.requests import ChatRequest, GenerateRequest
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.requests import ChatInput, InferenceRequest
from greenroom.schemas.thinking import Thinking
from greenroom.schemas.wire import structure

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


def test_ids_of_clients_that_know_them_are_kept() -> None:
    result = {"role": "tool", "tool_call_id": "x", "content": "1"}
    messages = chat(messages=[USER, called("a", a="x"), result]).messages
    assert (messages[1].tool_calls[0].id, messages[2].tool_call_id) == ("x", "x")


@pytest.mark.parametrize(
    ("think", "thinking"),
    [
        (None, Thinking()),
        (True, Thinking(enabled=True)),
        (False, Thinking(enabled=False)),
        ("high", Thinking(enabled=True, effort="high")),
    ],
)
def test_thinking_is_switched(think: Any, thinking: Thinking) -> None:
    assert chat(think=think).thinking == thinking


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({"num_predict": -1, "seed": -1, "num_ctx": 8, "mystery": {}}, {}),
        ({"num_predict": 5, "seed": 3}, {"max_tokens": 5, "seed": 3}),
        ({"repeat_penalty": 1.5, "repeat_last_n": 64}, {"repetition_penalty": 1.5}),
        ({"repeat_penalty": 1.5, "repeat_last_n": 0}, {}),
        ({"stop": ["a"], "typical_p": 1.0, "mirostat": 0}, {"stop": ("a",)}),
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
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_name"),
        ({"messages": [USER, called("a"), {"role": "tool", "tool_name": "b"}]}, "messages[2].tool_name"),
        ({"format": "yaml"}, "format"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"options": {"num_predict": "many"}}, "options.num_predict"),
        ({"options": [1]}, "options"),
        ({"options": {"typical_p": 0.5}}, "options.typical_p"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parsed(**body)
    assert (caught.value.problem.status, caught.value.problem.param) == (400, param)
