"""Parsing of request bodies, without a server: accepted, echoed and refused fields."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.responses.request_parser import UNSUPPORTED, parse_response_request
from greenroom.http.responses.response_object import ResponseEcho
from greenroom.schemas.messages.messages import ReasoningSettings, ToolChoice
from greenroom.schemas.messages.requests import (
    ChatInput,
    InferenceRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
)
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.responses_items import RESPONSES
from greenroom.schemas.wire.responses_requests import ResponseRequest
from greenroom.schemas.wire.wire import structure

FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}
SCHEMA = {"type": "object", "properties": {}}
FLAT = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}


def parsed(**body: Any) -> tuple[InferenceRequest, ResponseEcho]:
    body = {"input": "one", **body}
    refuse_unsupported(body, UNSUPPORTED)
    wire = structure(body, ResponseRequest, RESPONSES)
    request = parse_response_request(
        wire,
        body,
        answer_id="resp_1",
        identity=("req_1", "client"),
        settings=Settings(store_responses=False),
    )
    assert request.self_contained is not None
    return request.self_contained.request, request.formatter.echo


def chat(**body: Any) -> ChatInput:
    asked = parsed(**body)[0].input
    assert isinstance(asked, ChatInput)
    return asked


def refusal(**body: Any) -> tuple[str | None, str]:
    with pytest.raises(ProblemError) as caught:
        parsed(**body)
    assert caught.value.problem.status == 400
    return caught.value.problem.param, caught.value.problem.code


def test_parameters_are_taken_under_their_own_names() -> None:
    request, echo = parsed(
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        presence_penalty=1,
        frequency_penalty=-1,
        top_logprobs=3,
        seed=4,
        stop="x",
        truncation="auto",
    )
    assert request.overrides == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "top_logprobs": 3,
        "logprobs": True,
        "seed": 4,
        "stop": ("x",),
    }
    assert (request.id, request.client, request.overflow) == ("req_1", "client", "drop_oldest")
    assert echo.members["max_output_tokens"] == 9
    assert echo.members["truncation"] == "auto"
    assert echo.members["top_logprobs"] == 3


def test_log_probabilities_may_be_asked_for_alone() -> None:
    assert parsed(include=["message.output_text.logprobs"])[0].overrides == {"logprobs": True}


def test_a_response_repeats_its_request() -> None:
    asked = {
        "instructions": "Be brief.",
        "tools": [FUNCTION, {"type": "web_search", "filters": {"allowed_domains": ["a"]}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "user": "u",
        "prompt_cache_retention": "24h",
        "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
        "text": {"format": FLAT, "verbosity": "low"},
    }
    members = parsed(**asked)[1].members
    function, search = members["tools"]
    assert function == {**FUNCTION, "description": None, "strict": False}
    assert search == asked["tools"][1]  # type: ignore[index]
    assert members["text"] == {"format": FLAT, "verbosity": "low"}
    assert chat(**asked).verbosity == "low"
    unchanged = asked.keys() - {"tools", "text"}
    assert {name: members[name] for name in unchanged} == {name: asked[name] for name in unchanged}


def test_a_bare_request_is_repeated_with_what_was_taken() -> None:
    members = dict(parsed()[1].members)
    assert members == {
        "previous_response_id": None,
        "instructions": None,
        "tools": [],
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0,
        "reasoning": {"effort": None, "summary": None},
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": False,
        "background": False,
        "service_tier": "default",
        "metadata": {},
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def test_instructions_go_before_everything() -> None:
    messages = chat(instructions="Be brief.", input=[{"role": "developer", "content": "d"}]).messages
    assert [(message.role, message.text) for message in messages] == [
        ("system", "Be brief."),
        ("system", "d"),
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"effort": "none"}, ReasoningSettings(False)),
        ({"effort": "high", "summary": "detailed"}, ReasoningSettings(True, "high")),
        ({"context": "all_turns"}, ReasoningSettings(None, None, True)),
        ({"context": "current_turn"}, ReasoningSettings(None, None, False)),
        ({"context": "auto", "generate_summary": "concise"}, ReasoningSettings()),
        (None, ReasoningSettings()),
    ],
)
def test_how_much_to_think(given: Any, expected: ReasoningSettings) -> None:
    assert chat(reasoning=given).thinking == expected


@pytest.mark.parametrize(
    "body",
    [
        {"text": {"format": FLAT}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
            }
        },
        {"response_format": FLAT},
    ],
)
def test_a_schema_comes_under_several_names(body: Any) -> None:
    asked = parsed(**body)[0].response_format
    assert asked is not None
    assert asked == JsonSchemaFormat(SCHEMA, "n", True, asked.param)
    assert asked.param.endswith("schema")


def test_other_formats() -> None:
    assert parsed(text={"format": {"type": "json_object"}})[0].response_format == JsonObjectFormat(
        "text.format"
    )
    assert parsed(text={"format": {"type": "text"}})[0].response_format is None
    assert parsed(text={})[0].response_format is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "look"}, ToolChoice("named", "look")),
        ({"type": "custom", "name": "shell"}, ToolChoice("named", "shell")),
        (
            {
                "type": "allowed_tools",
                "tools": [{"type": "function", "name": "look"}, {"type": "web_search"}],
            },
            ToolChoice("auto", allowed=("look",)),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, ToolChoice("none")),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "mcp", "server_label": "files"}],
            },
            ToolChoice("required", allowed=()),
        ),
        ({"type": "mcp", "server_label": "files", "name": "look"}, ToolChoice("auto")),
    ],
)
def test_choices_of_tools(given: Any, expected: ToolChoice) -> None:
    assert chat(tools=[FUNCTION], tool_choice=given).tool_choice == expected


def test_a_function_that_is_forced_is_called_once() -> None:
    assert not chat(tools=[FUNCTION], tool_choice={"type": "function", "name": "look"}).parallel_tool_calls
    assert not chat(tools=[FUNCTION], tool_choice="required").parallel_tool_calls
    assert chat(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=True).parallel_tool_calls


def test_tools_that_nothing_here_runs_are_left_out() -> None:
    hosted = (
        "web_search",
        "file_search",
        "code_interpreter",
        "namespace",
        "local_shell",
        "tool_search",
        "new",
    )
    tools = [{"type": kind, "name": "a", "tools": []} for kind in hosted]
    deferred = {**FUNCTION, "name": "later", "defer_loading": True}
    assert [tool.name for tool in chat(tools=[*tools, deferred, FUNCTION]).tools] == ["look"]
    assert len(parsed(tools=[*tools, deferred, FUNCTION])[1].members["tools"]) == 9


def test_tools_that_nothing_here_runs_are_refused_where_no_other_is_offered() -> None:
    hosted = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": []}]
    assert refusal(tools=hosted)[0] == "tools[0].type"
    assert chat(tools=hosted, tool_choice="none").tools == ()
    assert chat(tools=[*hosted, {**FUNCTION, "defer_loading": True}]).tools == ()


def test_messages_of_chats_are_taken_too() -> None:
    conversation = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}], "reasoning_content": "hm"},
    ]
    user, call, result, answer = chat(input=None, messages=conversation).messages
    assert (user.text, call.tool_calls[0].name, result.text) == ("a", "look", "seen")
    assert (result.tool_call_id, answer.text, answer.reasoning) == ("c", "b", "hm")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": 3}, "input"),
        ({"input": [{"type": "tool_search_call", "call_id": []}]}, "input[0].call_id"),
        ({"input": [{"type": "tool_search_output", "call_id": {}, "tools": []}]}, "input[0].call_id"),
        ({"messages": []}, "messages"),
        ({"input": None, "messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"model": ""}, "model"),
        ({"conversation": {"id": "c"}, "conversation_id": "c"}, "conversation_id"),
        ({"conversation": {}}, "conversation.id"),
        ({"text": {"format": FLAT}, "response_format": FLAT}, "response_format"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}, "strict": 1}}}, "text.format.strict"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"verbosity": "mute"}}, "text.verbosity"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.schema",
        ),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"reasoning": {"summary": "auto", "generate_summary": "auto"}}, "reasoning.generate_summary"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"include": ["everything"]}, "include[0]"),
        ({"include": "reasoning.encrypted_content"}, "include"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"client_metadata": 5}, "client_metadata"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": "hot"}, "temperature"),
        ({"truncation": "some"}, "truncation"),
        ({"safety_identifier": "a" * 129}, "safety_identifier"),
        ({"prompt_cache_key": "a" * 2_000}, "prompt_cache_key"),
        ({"prompt_cache_retention": "1h"}, "prompt_cache_retention"),
        ({"prompt_cache_options": {"mode": "never"}}, "prompt_cache_options.mode"),
        ({"prompt_cache_options": {"ttl": 30}}, "prompt_cache_options.ttl"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"stream_options": {"include_obfuscation": 1}}, "stream_options.include_obfuscation"),
        ({"tools": [{"name": "look"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name"),
        (
            {"tools": [{"type": "custom", "name": "a", "format": {"type": "grammar"}}]},
            "tools[0].format.syntax",
        ),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{}]}}, "tool_choice.tools[0].type"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "any", "tools": [FUNCTION]}}, "tool_choice.mode"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice.server_label"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}},
            "tool_choice.tools[0].server_label",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    assert refusal(**body)[0] == param


def test_what_nobody_could_read_again_is_not_repeated() -> None:
    param, _ = refusal(tools=[FUNCTION, {"type": "web_search", "hint": "a" * 9_000_000}])
    assert param == "tools"
