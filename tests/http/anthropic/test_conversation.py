"""Conversion of Anthropic's content blocks to messages: nothing is lost, and deferred tools are added."""

from __future__ import annotations

import json
from typing import Any

import pytest

from greenroom.http.answering.explanation_body import sign, signed_reasoning
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall, ToolChoice
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.clients.anthropic_clients import USER, conversation

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
SEARCH = {"name": "ToolSearch", "description": "Find tools", "input_schema": SCHEMA}
LATER = {"name": "WebFetch", "description": "Fetch", "input_schema": SCHEMA, "defer_loading": True}
FOUND = [{"type": "tool_reference", "tool_name": "WebFetch"}]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(name: str = "f", call_id: str = "toolu_1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(content: Any = None, call_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def from_user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def from_assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def said(role: Any, words: str, **more: Any) -> Message:
    return Message(role, (TextPart(words),), **more)


def test_thoughts_texts_calls_and_results_arrive_whole() -> None:
    history = conversation(
        USER,
        from_assistant(
            {"type": "thinking", "thinking": "hm", "signature": sign("hm")},
            text("One "),
            text("moment."),
            use(city="Zürich"),
            use("g", "toolu_2"),
        ),
        from_user(
            text("And?"),
            result("sunny"),
            result([text("late"), text("very")], "toolu_2", is_error=True),
            text("Quick!"),
        ),
    )
    calls = (ToolCall("toolu_1", "f", '{"city": "Zürich"}'), ToolCall("toolu_2", "g", "{}"))
    assert history.messages == (
        said("user", USER["content"]),
        said("assistant", "One moment.", reasoning="hm", tool_calls=calls),
        said("tool", "sunny", tool_call_id="toolu_1"),
        said("tool", "Error: late\n\nvery", tool_call_id="toolu_2"),
        said("user", "And?\n\nQuick!"),
    )


def test_system_messages_stay_where_they_are_until_they_are_to_be_cleared() -> None:
    once = {"role": "system", "content": "Once.", "clear_at": "next_user_message"}
    late = {"role": "system", "content": [text("Late.")]}
    history = conversation(USER, once, late, from_assistant(text("Yes.")), USER, once, system="First.")
    assert [(message.role, message.text) for message in history.messages] == [
        ("system", "First."),
        ("user", USER["content"]),
        ("system", "Late."),
        ("assistant", "Yes."),
        ("user", USER["content"]),
        ("system", "Once."),
    ]


def test_documents_and_search_results_are_text() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "Once upon a time"}
    blocks = {"type": "content", "content": [text("there "), text("was")]}
    found = {"type": "search_result", "source": "https://a", "title": "A", "content": [text("a sea")]}
    document = {"type": "document", "title": "Tale", "context": "For children"}
    history = conversation(
        from_user(
            {**document, "source": plain}, {"type": "document", "source": blocks}, found, text("Sum up.")
        )
    )
    assert history.messages[0].text == (
        "<document>\n<title>Tale</title>\n<context>For children</context>\n"
        "<content>Once upon a time</content>\n</document>\n\n"
        "<document>\n<content>there was</content>\n</document>\n\n"
        "<search_result>\n<source>https://a</source>\n<title>A</title>\n<content>a sea</content>\n"
        "</search_result>\n\nSum up."
    )


def test_what_a_server_has_run_elsewhere_becomes_calls_and_results() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sea"}}
    read = {"type": "web_search_result", "url": "https://a"}
    page = {**read, "encrypted_content": "x" * 99}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page]}
    failed = {**found, "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}}
    history = conversation(
        USER, from_assistant(text("I look."), search, found, failed, text("It is blue.")), USER
    )
    assert history.messages[1:5] == (
        said("assistant", "I look.", tool_calls=(ToolCall("srvtoolu_1", "web_search", '{"query": "sea"}'),)),
        said("tool", json.dumps([read]), tool_call_id="srvtoolu_1"),
        said("tool", json.dumps(failed["content"]), tool_call_id="srvtoolu_1"),
        said("assistant", "It is blue."),
    )


def test_a_result_of_an_mcp_server_is_the_text_that_the_model_has_read() -> None:
    made = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "add", "server_name": "toy", "input": {}}
    told = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False}
    for content in ("5", [text("5")]):
        history = conversation(USER, from_assistant(made, {**told, "content": content}), USER)
        assert history.messages[2] == said("tool", "5", tool_call_id="mcptoolu_1")


def test_a_deferred_tool_joins_with_the_result_that_refers_to_it() -> None:
    before = conversation(USER, tools=[SEARCH, LATER])
    assert before.tools == (Tool("ToolSearch", "Find tools", SCHEMA),)
    turns = (USER, from_assistant(use("ToolSearch")), from_user(result([*FOUND, *FOUND, text("ok")])))
    after = conversation(*turns, tools=[SEARCH, LATER], tool_choice={"type": "tool", "name": "WebFetch"})
    assert after.tools == (*before.tools, Tool("WebFetch", "Fetch", SCHEMA, described=False))
    assert after.tool_choice == ToolChoice("named", "WebFetch")
    definition = {"name": "WebFetch", "description": "Fetch", "parameters": SCHEMA}
    assert after.messages[-1].text == (
        f"This tool can be called from now on:\n{json.dumps(definition)}\n\n"
        "The tool 'WebFetch' can be called.\n\nok"
    )
    gone = conversation(*turns, tools=[SEARCH])
    assert gone.messages[-1].text.startswith("The tool 'WebFetch' is not on offer.")
    with pytest.raises(ProblemError, match="not among the tools"):
        conversation(USER, tools=[SEARCH, LATER], tool_choice={"type": "tool", "name": "WebFetch"})


def test_system_messages_add_and_withdraw_tools() -> None:
    def change(kind: str, tool: Any) -> dict[str, Any]:
        return {"role": "system", "content": [{"type": f"tool_{kind}", "tool": tool}]}

    search = {"type": "tool_reference", "name": "ToolSearch"}
    defined = {"type": "tool_definition", "definition": {"name": "now", "input_schema": {}}}
    fetch = {"type": "tool_reference", "name": "WebFetch"}
    withdrawn = change("removal", search)
    history = conversation(
        USER, change("addition", defined), change("addition", fetch), withdrawn, tools=[SEARCH, LATER]
    )
    assert [(tool.name, tool.described) for tool in history.tools] == [
        ("ToolSearch", True),
        ("now", False),
        ("WebFetch", False),
    ]
    assert history.tool_choice == ToolChoice("auto", allowed=("now", "WebFetch"))
    assert history.messages[-1].text == "The tool 'ToolSearch' can no longer be called."
    assert (
        conversation(USER, withdrawn, change("addition", search), tools=[SEARCH]).tool_choice.allowed is None
    )
    assert conversation(USER, withdrawn, tools=[SEARCH]).tool_choice.mode == "none"
    told = {"role": "system", "content": [{"type": "text", "text": "Be brief."}, *withdrawn["content"]]}
    notes = [
        conversation(USER, message, tools=[SEARCH]).messages[-1].is_note for message in (withdrawn, told)
    ]
    assert notes == [True, False], "tools alone do not replace the operator's system prompt"


def test_tools_of_anthropics_server_may_be_withdrawn() -> None:
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "web_search"}}
    server = {"type": "web_search_20260209", "name": "web_search"}
    asked = conversation(USER, {"role": "system", "content": [removed]}, tools=[server, SEARCH])
    assert [tool.name for tool in asked.tools] == ["ToolSearch"]
    assert asked.tool_choice == ToolChoice()


def test_tools_of_anthropics_server_are_left_out() -> None:
    server = [
        {"type": "web_search_20260209", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp_toolset", "mcp_server_name": "x"},
    ]
    examples = {**SEARCH, "type": "custom", "strict": True, "input_examples": [{"city": "Rom"}]}
    tools = conversation(USER, tools=[*server, examples]).tools
    description = 'Find tools\n\nExamples of input:\n{"city": "Rom"}'
    assert tools == (Tool("ToolSearch", description, SCHEMA, strict=True),)
    assert conversation(USER, tools=server, tool_choice={"type": "none"}).tools == ()


def test_tools_of_anthropics_server_are_refused_where_no_other_is_offered() -> None:
    with pytest.raises(ProblemError) as refused:
        conversation(USER, tools=[{"type": "web_search_20260209", "name": "web_search"}])
    problem = refused.value.problem
    assert (problem.status, problem.param) == (400, "tools[0].type")
    assert "web_search_20260209" in problem.detail


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        (None, ToolChoice("auto"), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), False),
        ({"type": "any"}, ToolChoice("required"), False),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice("required"), True),
        ({"type": "tool", "name": "ToolSearch"}, ToolChoice("named", "ToolSearch"), False),
        ({"type": "none"}, ToolChoice("none"), True),
    ],
)
def test_every_choice_of_tools_is_kept(choice: Any, expected: ToolChoice, parallel: bool) -> None:
    asked = conversation(USER, tools=[SEARCH], tool_choice=choice)
    assert (asked.tool_choice, asked.parallel_tool_calls) == (expected, parallel)


@pytest.mark.parametrize("thought", ["", "so what", "é🎭\ud800", "." * 9])
def test_a_signature_belongs_to_its_thought_and_a_hidden_thought_travels_in_it(thought: str) -> None:
    readable = thought.replace("\ud800", "?")
    assert signed_reasoning(thought, sign(thought)) == readable
    assert signed_reasoning("", sign(thought, hidden=True)) == readable
    assert signed_reasoning(thought, sign(thought, hidden=True)) == readable
    for shown, signature in (
        (thought + "!", sign(thought)),
        (thought + "!", sign(thought, hidden=True)),
        (thought, sign(thought) + "0"),
        (thought, sign(thought)[1:]),
        ("", sign(thought, hidden=True) + "?"),
        (thought, ""),
        ("", "gr1..é"),
    ):
        assert signed_reasoning(shown, signature) is None


def test_a_thought_that_was_not_shown_comes_back_with_its_signature() -> None:
    hidden = {"type": "thinking", "thinking": "", "signature": sign("because", hidden=True)}
    history = conversation(USER, from_assistant(hidden, text("Yes.")), USER)
    assert history.messages[1] == said("assistant", "Yes.", reasoning="because")
