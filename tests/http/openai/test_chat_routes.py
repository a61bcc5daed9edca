"""Parsing of `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.answering.request_parameters import MAX_MODEL_NAME
from greenroom.http.guard.json_counter import MAX_CONTAINERS
from greenroom.http.openai.chat_routes import parse_chat_request
from greenroom.schemas.messages.messages import (
    MAX_CALLS,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    Message,
    ReasoningSettings,
    TextPart,
    Tool,
    ToolCall,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.wire.openai_chat import OPENAI, ChatRequest
from greenroom.schemas.wire.wire import structure

USER = {"role": "user", "content": "hi"}
TEXT = {"type": "text", "text": "hi"}


def parse_chat(*messages: Any, **fields: Any) -> InferenceRequest:
    """Return the protocol-independent request of a chat's messages and fields."""
    return parse({"model": "m", "messages": list(messages), **fields})


def parse(body: Any) -> InferenceRequest:
    """Return the protocol-independent request of a body."""
    return parse_chat_request(structure(body, ChatRequest, OPENAI), body, "req_1")


def conversation(*messages: Any, **fields: Any) -> ChatInput:
    """Return the chat input of a body with these messages and fields."""
    request = parse_chat(*messages, **fields).input
    assert isinstance(request, ChatInput)
    return request


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
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "as Mistral's "}]},
                {"type": "thinking", "thinking": "or a text", "signature": "s"},
                {"type": "text", "text": "yes"},
            ],
        },
        USER,
        {
            "role": "assistant",
            "content": "yes",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "as OpenRouter's"},
                {"type": "reasoning.encrypted", "data": "eA=="},
            ],
        },
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
        Message("user", (TextPart(USER["content"]),)),
        Message("assistant", (TextPart("yes"),), reasoning="as Mistral's or a text"),
        Message("user", (TextPart(USER["content"]),)),
        Message("assistant", (TextPart("yes"),), reasoning="as OpenRouter's"),
    )


def test_a_limit_of_minus_one_is_none() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        assert parse_chat(USER, **{name: -1}).overrides == {}
        with pytest.raises(ProblemError, match=name):
            parse_chat(USER, **{name: -2})


def test_tools_arrive_with_their_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "weather", "description": "of a city", "parameters": schema, "strict": True}
    tools = [{"type": "function", "function": function}, {"type": "function", "function": {"name": "now"}}]
    offered = conversation(USER, tools=tools)
    assert offered.tools == (Tool("weather", "of a city", schema, True), Tool("now"))
    assert offered.tool_choice.mode == "auto"
    assert conversation(USER, tools=tools, tool_choice="none").tool_choice.mode == "none"


def test_a_function_that_is_forced_is_called_once() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    named = {"type": "function", "function": {"name": "now"}}
    assert not conversation(USER, tools=tools, tool_choice=named).parallel_tool_calls
    assert not conversation(
        USER, tools=tools, tool_choice=named, parallel_tool_calls=True
    ).parallel_tool_calls
    forced = {"tools": tools, "tool_choice": "required"}
    assert not conversation(USER, **forced).parallel_tool_calls
    assert conversation(USER, **forced, parallel_tool_calls=True).parallel_tool_calls
    assert conversation(USER, tools=tools).parallel_tool_calls


def test_parameters_arrive_under_their_neutral_names() -> None:
    request = parse_chat(USER, temperature=0, top_p=0.5, top_k=3, min_p=0.1, stop="x", max_tokens=5)
    assert request.overrides == {
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "stop": ("x",),
        "max_tokens": 5,
    }
    assert parse_chat(USER, stop=["a", "b"], max_tokens=5, max_completion_tokens=7).overrides == {
        "stop": ("a", "b"),
        "max_tokens": 7,
    }
    assert parse_chat(USER, temperature=None, stop=None, max_tokens=None).overrides == {}


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, ReasoningSettings()),
        ({"reasoning_effort": "none"}, ReasoningSettings(False)),
        ({"reasoning_effort": "minimal"}, ReasoningSettings(True, "minimal")),
        ({"reasoning_effort": "max"}, ReasoningSettings(True, "max")),
        ({"reasoning": {"effort": "low"}}, ReasoningSettings(True, "low")),
        ({"thinking": {"type": "disabled"}}, ReasoningSettings(False)),
        ({"thinking": {"type": "enabled", "clear_thinking": False}}, ReasoningSettings(True, preserved=True)),
        ({"enable_thinking": False}, ReasoningSettings(False)),
        ({"reasoning_effort": "none", "enable_thinking": True}, ReasoningSettings(True)),
        ({"reasoning_effort": "high", "enable_thinking": False}, ReasoningSettings(False, "high")),
    ],
)
def test_thinking_is_switched_in_every_way_that_clients_know(
    fields: dict[str, Any], thinking: ReasoningSettings
) -> None:
    assert conversation(USER, **fields).thinking == thinking


def test_options_of_the_template_are_passed_on_as_they_are() -> None:
    options = {"enable_thinking": True, "style": 1}
    chat = conversation(USER, reasoning_effort="none", chat_template_kwargs=options)
    assert (chat.template_options, chat.thinking) == (options, ReasoningSettings(False))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [USER]}, "model"),
        ({"model": 1, "messages": [USER]}, "model"),
        ({"model": "m" * (MAX_MODEL_NAME + 1), "messages": [USER]}, "model"),
        ({"model": "m", "messages": [USER] * (MAX_MESSAGES + 1)}, "messages"),
        ({"model": "m", "messages": [1] * MAX_MESSAGES}, "messages[0]"),
        ({"model": "m", "messages": [{**USER, "content": [TEXT] * (MAX_PARTS + 1)}]}, "messages[0].content"),
        (
            {"model": "m", "messages": [{**USER, "tool_calls": [1] * (MAX_CALLS + 1)}]},
            "messages[0].tool_calls",
        ),
        ({"model": "m", "messages": [USER], "tools": [{}] * (MAX_TOOLS + 1)}, "tools"),
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
            {"model": "m", "messages": [{**USER, "content": [{"type": "thinking", "thinking": "x"}]}]},
            "messages[0].content[0]",
        ),
        (
            {
                "model": "m",
                "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            },
            "messages[0].content[0].image_url.url",
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
                        "tool_calls": [{"id": "a", "type": "magic", "function": {"name": "f"}}],
                    }
                ],
            },
            "messages[0].tool_calls[0].type",
        ),
        ({"model": "m", "messages": [USER], "stream": "yes"}, "stream"),
        ({"model": "m", "messages": [USER], "stream_options": True}, "stream_options"),
        ({"model": "m", "messages": [USER], "tools": {}}, "tools"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "magic"}]}, "tools[0].type"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "function"}]}, "tools[0].function"),
        (
            {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": {"name": ""}}]},
            "tools[0].function.name",
        ),
        ({"model": "m", "messages": [USER], "temperature": 3}, "temperature"),
        ({"model": "m", "messages": [USER], "temperature": "warm"}, "temperature"),
        ({"model": "m", "messages": [USER], "top_p": -0.1}, "top_p"),
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
        parse(body)
    assert refused.value.problem.status == 400
    assert refused.value.problem.param == param
    assert param is None or f"`{param}`" in refused.value.problem.detail


def test_unknown_fields_are_ignored() -> None:
    assert conversation({**USER, "vendor": 1}, user="u", metadata={}, vendor=[1]).messages[0].text == "hi"


def test_arguments_in_the_history_hold_no_more_than_a_body() -> None:
    def called(arguments: str, times: int = 1) -> dict[str, Any]:
        call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
        return {"role": "assistant", "tool_calls": [call] * times}

    half = "[" + "[]," * (MAX_CONTAINERS // 2) + "[]]"
    assert conversation(USER, called(half), called('{"unfinished": "' + "[" * 100))
    with pytest.raises(ProblemError) as refused:
        conversation(USER, called(half, times=2))
    assert refused.value.problem.param == "messages[1].tool_calls[1].function.arguments"
    assert refused.value.problem.status == 400
