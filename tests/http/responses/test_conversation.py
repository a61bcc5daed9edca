"""Conversion of items to messages: reasoning, calls and their results."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from greenroom.http.answering.explanation_body import sign
from greenroom.http.responses.conversation import Conversation
from greenroom.schemas.messages.messages import Message, ToolCall
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.wire.responses_items import structure_items

USER = {"role": "user", "content": "one"}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at":1}'}
CALLED = ToolCall("c", "look", '{"at":1}')


def read(*items: dict[str, Any]) -> tuple[Message, ...]:
    conversation = Conversation()
    conversation.read(structure_items(list(items)), "items")
    return conversation.messages()


def problem(*items: dict[str, Any]) -> Problem:
    with pytest.raises(ProblemError) as caught:
        read(*items)
    return caught.value.problem


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], **more}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def output(text: Any, call_id: str = "c") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_what_the_assistant_said_between_others_is_one_turn() -> None:
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "shell", "input": 'ls "a"'}
    results = output("1"), {"type": "custom_tool_call_output", "call_id": "d", "output": "2"}
    user, turn, first, second, last = read(
        USER, thought("hm"), said("I look."), CALL, custom, *results, said("There.")
    )
    assert (user.role, turn.role, turn.text, turn.reasoning) == ("user", "assistant", "I look.", "hm")
    assert turn.tool_calls == (CALLED, ToolCall("d", "shell", '{"input": "ls \\"a\\""}'))
    assert [(result.tool_call_id, result.text) for result in (first, second)] == [("c", "1"), ("d", "2")]
    assert (last.role, last.text) == ("assistant", "There.")


def test_two_messages_of_one_turn_are_parted() -> None:
    [turn] = read(said("One."), said("Two."), said("\nThree."))
    assert turn.text == "One.\n\nTwo.\nThree."


def test_parts_of_several_kinds_are_text() -> None:
    content = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    user, turn, result = read({"role": "user", "content": content}, refused, CALL, output(content))
    assert (user.text, turn.text, result.text) == ("ab", "No.", "ab")


def test_a_thought_is_read_from_its_seal_first() -> None:
    shown = {"content": [{"type": "reasoning_text", "text": "whole"}]}
    sealed = {"encrypted_content": sign("sealed", hidden=True)}
    foreign = {"encrypted_content": "gAAAA-of-somebody-else"}
    for more, expected in (
        ({**shown, **sealed}, "sealed"),
        (shown, "whole"),
        ({**shown, **foreign}, None),  # nobody can tell whether it is this thought's
        (foreign, None),
        ({"encrypted_content": "gr1.changed"}, None),
        ({"encrypted_content": ""}, "short"),
        ({"content": []}, "short"),
    ):
        assert read(thought("short", **more))[0].reasoning == expected


def test_arguments_may_be_an_object_and_may_be_missing() -> None:
    bare = {"type": "function_call", "call_id": "d", "name": "look"}
    [turn] = read({**CALL, "arguments": {"at": 1}}, bare)
    assert [call.arguments for call in turn.tool_calls] == ['{"at": 1}', "{}"]


def test_what_other_tools_brought_is_the_result_of_a_call() -> None:
    shell = {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}}
    shown = {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "a", "stderr": ""}]}
    remote = {"type": "mcp_call", "id": "m", "name": "find", "server_label": "l", "arguments": "{}"}
    code = {
        "type": "code_interpreter_call",
        "id": "i",
        "code": "1",
        "outputs": [{"type": "logs", "logs": "1"}],
    }
    patch = {"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file", "path": "a"}}
    patched = {"type": "apply_patch_call_output", "call_id": "p", "status": "completed"}
    local = {"type": "local_shell_call", "id": "x", "call_id": "l", "action": {"command": ["ls"]}}
    listed = {"type": "local_shell_call_output", "id": "l", "output": "b"}
    answered, failed = {**remote, "output": "found"}, {**remote, "id": "n", "error": "lost"}
    broken = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "lost"}]}
    messages = read(shell, shown, answered, failed, code, patch, patched, local, listed)
    assert read({**failed, "error": broken}) == read(failed)
    calls = [call for message in messages for call in message.tool_calls]
    assert [call.name for call in calls] == [
        *("shell", "find", "find", "code_interpreter", "apply_patch", "local_shell")
    ]
    results = [message.text for message in messages if message.role == "tool"]
    assert results[1:3] == ["found", "Error: lost"]
    assert results[4:] == ["completed", "b"]
    assert '"stdout": "a"' in results[0]
    assert '"logs": "1"' in results[3]


@pytest.mark.parametrize("kind", ["web_search_call", "file_search_call", "mcp_list_tools", "computer_call"])
def test_what_only_another_server_could_use_is_left_out(kind: str) -> None:
    assert read(USER, {"type": kind, "id": "x", "action": {}}) == read(USER)


def test_tools_may_join_in_the_middle() -> None:
    joined = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "late"}],
    }
    conversation = Conversation()
    conversation.read(structure_items([USER, joined, joined]), "items")
    _, told = conversation.messages()
    assert told.role == "system"
    assert told.is_note, "it would hide the operator's system prompt"
    assert '"name": "late"' in told.text
    assert [tool.name for tool in conversation.tools] == ["late"]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([output("x")], "items[0].call_id"),
        ([CALL, output([{"type": "input_image", "image_url": "u"}])], "items[1].output[0].image_url"),
        (
            [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
            "items[0].content[0].file_id",
        ),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "items[0].content[0].text"),
        ([{"role": "user", "content": None}], "items[0].content"),
        ([{**CALL, "name": ""}], "items[0].name"),
        ([{**CALL, "call_id": ""}], "items[0].call_id"),
        ([{**CALL, "arguments": [1]}], "items[0].arguments"),
        ([{**CALL, "arguments": "[" * 200_000}], "items[0].arguments"),
        ([{"type": "mcp_call", "id": 3, "name": "a"}], "items[0].id"),
        ([{"type": "shell_call", "action": {}}], "items[0].call_id"),
        ([{"type": "computer_call_output", "call_id": "c"}], "items[0].output"),
        ([{"type": "compaction", "encrypted_content": "a"}], "items[0].encrypted_content"),
        ([{"type": "what"}], "items[0]"),
        ([{"type": "configuration_update", "reasoning": {"effort": "low"}}], "items[0]"),
        ([{"type": "compaction_trigger"}], "items[0]"),
        ([{**CALL, "id": 1}], "items[0].id"),
        ([{"type": "web_search_call", "status": ["completed"]}], "items[0].status"),
        ([thought("a", encrypted_content="a" * 11_000_000)], "items[0].encrypted_content"),
        ([{"type": ["message"], "role": "user", "content": "a"}], "items[0]"),
        ([{"type": "additional_tools", "tools": [{"type": "mcp"}]}], "items[0].tools[0].server_label"),
        ([{"type": "mcp_approval_request", "id": "m"}], "items[0].server_label"),
        ([{"type": "mcp_approval_response", "approve": True}], "items[0].approval_request_id"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(items: list[Any], param: str) -> None:
    refused = problem(*items)
    assert (refused.status, refused.param) == (400, param)


def test_more_tools_than_a_request_may_offer_cannot_join() -> None:
    joined = [
        {"type": "additional_tools", "tools": [{"type": "function", "name": f"t{i}"}]} for i in range(2_049)
    ]
    assert len(read(*joined[:-1])) == 2_048
    assert problem(*joined).param == "items[2048].tools"


def test_an_item_that_is_not_kept_here_is_unknown() -> None:
    for reference in ({"id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}):
        unknown = problem(USER, reference)
        assert attrs.astuple(unknown)[:2] == (404, "item_not_found")
        assert unknown.param == "items[1].id"
