"""Parsing of `POST /v1/messages`: parameters, reasoning, formats, and refused fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.anthropic.messages_request import UNSUPPORTED
from greenroom.schemas.messages.messages import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    Message,
    ReasoningSettings,
    TextPart,
)
from greenroom.schemas.messages.requests import JsonSchemaFormat
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.clients.anthropic_clients import USER, conversation, parse

TEXT = {"type": "text", "text": "hi"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 2_000, "messages": [USER], **fields}


def test_parameters_arrive_under_their_neutral_names() -> None:
    request = parse(asked(temperature=0.5, top_p=0.9, top_k=3, stop_sequences=["a", "b"], metadata={}))
    assert request.overrides == {
        "max_tokens": 2_000,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "stop": ("a", "b"),
    }


ADAPTIVE = {"thinking": {"type": "adaptive"}}


def edits(*edits: Any) -> dict[str, Any]:
    return {"context_management": {"edits": list(edits)}}


@pytest.mark.parametrize(
    ("fields", "thinking", "budget"),
    [
        ({}, ReasoningSettings(False), None),
        ({"thinking": {"type": "disabled"}}, ReasoningSettings(False), None),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, ReasoningSettings(True), None),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, ReasoningSettings(True), 1024),
        ({"thinking": {"type": "between_tools"}}, ReasoningSettings(False), None),
        ({**ADAPTIVE, "output_config": {"effort": "high"}}, ReasoningSettings(True, "high"), None),
        ({"output_config": {"effort": "low"}}, ReasoningSettings(False), None),
        (
            {**ADAPTIVE, **edits({"type": "clear_thinking_20251015", "keep": "all"})},
            ReasoningSettings(True, None, True),
            None,
        ),
        (edits({"type": "clear_thinking_20251015"}), ReasoningSettings(False, None, False), None),
        (
            edits({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}),
            ReasoningSettings(False, None, False),
            None,
        ),
    ],
)
def test_thinking_is_asked_for_and_bounded(
    fields: dict[str, Any], thinking: ReasoningSettings, budget: int | None
) -> None:
    request = parse(asked(**fields))
    assert request.input.thinking == thinking  # type: ignore[union-attr]
    assert request.overrides.get("thinking_budget") == budget


def test_thoughts_between_tools_come_after_a_result_only() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    result = user({"type": "tool_result", "tool_use_id": "t", "content": "1"})
    asked = conversation(USER, call, result, tools=[TOOL], thinking={"type": "between_tools"})
    assert asked.thinking == ReasoningSettings(True)


def test_a_budget_may_exceed_one_answer_where_thoughts_are_interleaved() -> None:
    request = asked(thinking={"type": "enabled", "budget_tokens": 9_000})
    with pytest.raises(ProblemError, match="max_tokens"):
        parse(request)
    assert parse(request, "a,interleaved-thinking-2025-05-14").overrides["thinking_budget"] == 9_000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format.schema"),
        ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format.schema"),
    ],
)
def test_a_format_may_be_asked_for_in_the_new_and_the_old_way(fields: dict[str, Any], param: str) -> None:
    assert parse(asked(**fields)).response_format == JsonSchemaFormat({}, param=param)


def test_the_line_about_billing_never_reaches_the_prompt() -> None:
    line = "x-anthropic-billing-header: cc_version=2.1.329; cc_entrypoint=cli; cch={};"
    blocks = [
        [{"type": "text", "text": line.format(cch)}, {"type": "text", "text": "Be brief."}, TEXT]
        for cch in ("1a2b3", "4c5d6")
    ]
    first, second = (conversation(USER, system=system) for system in blocks)
    assert first == second
    assert first.messages[0] == Message("system", (TextPart("Be brief.\n\nhi"),))
    assert conversation(USER, system=line.format(1) + "\nBe brief.").messages[0].text == "Be brief."
    assert conversation(USER, system=line.format(1)).messages == conversation(USER).messages


def test_an_answer_that_the_client_began_is_continued() -> None:
    begun = conversation(USER, {"role": "assistant", "content": "The sea is"})
    assert begun.continue_final_message
    assert begun.messages[-1] == Message("assistant", (TextPart("The sea is"),))
    empty = conversation(USER, {"role": "assistant", "content": [{"type": "text", "text": " "}]})
    assert empty == conversation(USER)
    assert not empty.continue_final_message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 1}, "model"),
        ({"model": " "}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [USER] * (MAX_MESSAGES + 1)}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": TEXT}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": TEXT}, USER]}, "messages[0].content"),
        ({"messages": [USER, {"role": "system", "content": TEXT}]}, "messages[1].content"),
        ({"system": TEXT}, "system"),
        ({"messages": [user(*[TEXT] * (MAX_PARTS + 1))]}, "messages[0].content"),
        ({"messages": [user({"text": "x"})]}, "messages[0].content[0].type"),
        ({"messages": [user({"type": "text"})]}, "messages[0].content[0].text"),
        ({"messages": [user({"type": "smell"})]}, "messages[0].content[0]"),
        ({"messages": [user(TEXT, {"type": "image", "source": {}})]}, "messages[0].content[1].source.type"),
        ({"messages": [user({"type": "container_upload"})]}, "messages[0].content[0]"),
        ({"messages": [user({"type": "document"})]}, "messages[0].content[0].source"),
        (
            {"messages": [user({"type": "document", "source": {"type": "base64", "data": "x"}})]},
            "messages[0].content[0].source.media_type",
        ),
        (
            {"messages": [user({"type": "document", "source": {"type": "cloud"}})]},
            "messages[0].content[0].source.type",
        ),
        (
            {"messages": [user({"type": "document", "source": {"type": "content", "content": [3]}})]},
            "messages[0].content[0].source.content[0]",
        ),
        (
            {
                "messages": [
                    user({**TEXT, "type": "search_result", "content": [TEXT], "citations": {"enabled": True}})
                ]
            },
            "messages[0].content[0].citations",
        ),
        (
            {"messages": [user({"type": "tool_result", "tool_use_id": "x"})]},
            "messages[0].content[0].tool_use_id",
        ),
        ({"messages": [user({"type": "tool_result"})]}, "messages[0].content[0].tool_use_id"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]},
            "messages[0].content[0].id",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]},
            "messages[0].content[0].name",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}]},
            "messages[0]",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "thinking", "signature": "a"}]}]},
            "messages[0].content[0].thinking",
        ),
        ({"messages": [{"role": "system", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "system", "content": "x", "clear_at": "dawn"}]}, "messages[0].clear_at"),
        (
            {"messages": [{"role": "system", "content": "x", "output_config": {"effort": "low"}}]},
            "messages[0].output_config",
        ),
        (
            {"messages": [{"role": "system", "content": [{"type": "tool_addition"}]}]},
            "messages[0].content[0].tool",
        ),
        (
            {
                "messages": [
                    {
                        "role": "system",
                        "content": [
                            {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "g"}}
                        ],
                    }
                ]
            },
            "messages[0].content[0].tool.name",
        ),
        (
            {
                "messages": [
                    {
                        "role": "system",
                        "content": [
                            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "g"}}
                        ],
                    }
                ]
            },
            "messages[0].content[0].tool.name",
        ),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"system": 1}, "system"),
        ({"stream": "yes"}, "stream"),
        ({"tools": {}}, "tools"),
        ({"tools": [TOOL] * (MAX_TOOLS + 1)}, "tools"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "name": ""}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [{**TOOL, "allowed_callers": ["code_execution_20250825"]}]}, "tools[0].allowed_callers"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1_000}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "minimal"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        (
            {
                "output_config": {"format": {"type": "json_schema", "schema": {}}},
                "output_format": {"type": "json_schema", "schema": {}},
            },
            "output_format",
        ),
        (
            {
                "messages": [USER, {"role": "assistant", "content": "{"}],
                "output_format": {"type": "json_schema", "schema": {}},
            },
            "messages[1]",
        ),
        (edits({"type": "compact_20260112"}), "context_management.edits[0]"),
        (
            edits({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}}),
            "context_management.edits[0]",
        ),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": "a" * 2_000}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    request = {name: value for name, value in asked(**fields).items() if value is not None}
    with pytest.raises(ProblemError) as refused:
        parse(request)
    problem = refused.value.problem
    assert (problem.status, problem.param) == (400, param)
    assert f"`{param}`" in problem.detail


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_parameter_that_is_not_honoured_is_refused_by_name(name: str) -> None:
    def holding(value: Any) -> dict[str, Any]:
        *parents, last = name.split(".")
        return {parents[0]: {last: value}} if parents else {last: value}

    refuse_unsupported(holding(None), UNSUPPORTED)
    for neutral in UNSUPPORTED[name]:
        refuse_unsupported(holding(neutral), UNSUPPORTED)
    with pytest.raises(ProblemError) as refused:
        refuse_unsupported(holding({"type": "unheard of"}), UNSUPPORTED)
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.param) == (400, "unsupported_parameter", name)


def test_unknown_fields_are_ignored() -> None:
    vendor = {"vendor": [1], "cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "{}"}}
    message = {**user({**TEXT, "cache_control": {"type": "ephemeral"}, "vendor": 1}), "vendor": 1}
    assert conversation(message, **vendor).messages[0].text == "hi"


_scalars = st.sampled_from(
    [None, True, 0, 1, -1, 1.5, "", "a", "text", "tool_use", "tool_result", "thinking"]
)
_names = st.sampled_from(
    [
        *("type", "text", "role", "content", "id", "name", "input", "tool_use_id", "source", "data", "tool"),
        *("thinking", "signature", "messages", "system", "tools", "tool_choice", "output_config", "format"),
        *("schema", "input_schema", "max_tokens", "model", "edits", "context_management", "definition"),
        *(
            "defer_loading",
            "tool_name",
            "is_error",
            "citations",
            "budget_tokens",
            "stop_sequences",
            "display",
        ),
    ]
)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=5),
    max_leaves=20,
)
_blocks = st.dictionaries(_names, _json, max_size=5)
_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"])},
    optional={"content": st.lists(_blocks, max_size=3) | _json},
)


@given(
    st.fixed_dictionaries(
        {"model": st.just("m"), "max_tokens": st.just(5)},
        optional={
            "messages": st.lists(_messages, max_size=3) | _json,
            "system": st.lists(_blocks, max_size=3) | _json,
            "tools": st.lists(_blocks, max_size=3) | _json,
            "tool_choice": _blocks | _json,
            "thinking": _blocks | _json,
            "output_config": _blocks | _json,
            "context_management": _blocks | _json,
        },
    )
)
def test_whatever_json_holds_is_parsed_or_refused_by_name(request: dict[str, Any]) -> None:
    problem = problem_of(request)
    assert problem is None or (problem.status == 400 and problem.param)


def problem_of(request: dict[str, Any]) -> Problem | None:
    try:
        refuse_unsupported(request, UNSUPPORTED)
        parse(request)
    except ProblemError as error:
        return error.problem
    return None
