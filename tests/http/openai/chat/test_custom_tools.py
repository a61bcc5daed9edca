"""Custom tools over HTTP, with OpenAI's own clients."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest

from greenroom.schemas.messages.messages import Message, TextInput, TextPart, ToolCall, ToolChoice
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.openai.chat.test_chat_request import conversation
from greenroom.tests.support.clients.openai_clients import ask_together
from greenroom.tests.support.servers.http_servers import serving

PATTERN = r'^SELECT [a-z]{1,3}\n"[0-9]+"$'
QUERY = {
    "type": "custom",
    "custom": {
        "name": "query",
        "description": "Asks the database.",
        "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": PATTERN}},
    },
}
NOTE = {"type": "custom", "custom": {"name": "note", "format": {"type": "text"}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "custom", "custom": {"name": "query"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
USER: Any = {"role": "user", "content": "What is there?"}
PAST: list[Any] = [
    USER,
    {
        "role": "assistant",
        "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "note", "input": 'say "hö"'}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "Noted."},
    USER,
]


def test_custom_tools_and_their_calls_are_neutral() -> None:
    chat = conversation(*PAST, tools=[QUERY, NOTE, ADD], tool_choice=NAMED)
    query, note, add = chat.tools
    assert query.input == TextInput("regex", PATTERN)
    assert query.strict
    assert "Asks the database." in query.description
    assert PATTERN in query.description
    assert note.input == TextInput()
    assert not note.strict
    assert add.input is None
    assert chat.tool_choice == ToolChoice("named", "query")
    assert chat.messages[1] == Message(
        "assistant", tool_calls=(ToolCall("call_1", "note", '{"input": "say \\"hö\\""}'),)
    )
    assert chat.messages[2] == Message("tool", (TextPart("Noted."),), tool_call_id="call_1")


def custom(**fields: Any) -> Any:
    return {"type": "custom", "custom": {"name": "run", **fields}}


def grammar(**fields: Any) -> Any:
    return custom(format={"type": "grammar", "grammar": {"syntax": "lark", "definition": "x", **fields}})


FORMAT = "tools[0].custom.format"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [custom(name=None)]}, "tools[0].custom.name"),
        ({"tools": [custom(name="")]}, "tools[0].custom.name"),
        ({"tools": [custom(description=5)]}, "tools[0].custom.description"),
        ({"tools": [custom(format="text")]}, FORMAT),
        ({"tools": [custom(format={"type": "json"})]}, f"{FORMAT}.type"),
        ({"tools": [custom(format={"type": "grammar", "grammar": 5})]}, f"{FORMAT}.grammar"),
        ({"tools": [grammar(syntax="gbnf")]}, f"{FORMAT}.grammar.syntax"),
        ({"tools": [grammar(definition=None)]}, f"{FORMAT}.grammar.definition"),
        ({"tools": [grammar(definition=5)]}, f"{FORMAT}.grammar.definition"),
        ({"tools": [grammar(definition="\ud800")]}, f"{FORMAT}.grammar.definition"),
        ({"tools": [ADD, custom(name="add")]}, "tools[1].custom.name"),
        ({"tools": [custom(name="add"), ADD]}, "tools[1].function.name"),
        ({"tools": [NOTE], "tool_choice": {"type": "custom"}}, "tool_choice.custom.name"),
    ],
)
def test_what_makes_no_sense_is_named(fields: Any, param: str) -> None:
    with pytest.raises(ProblemError) as refused:
        conversation(USER, **fields)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


@pytest.mark.parametrize(("model", "choice"), [("qwen3", NAMED), ("llama", ALLOWED), ("llama", "required")])
async def test_a_forced_call_comes_as_text(settings: Settings, choice: Any, model: str) -> None:
    fields: dict[str, Any] = {
        "messages": PAST,
        "tools": [QUERY] if choice == "required" else [QUERY, NOTE, ADD],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 500,
        "reasoning_effort": "none",
    }

    def streamed(client: openai.OpenAI) -> Any:
        with client.chat.completions.stream(model=model, **fields) as events:
            for _ in events:
                pass
            # The SDK's final step does not support streamed custom calls, but its snapshot is complete.
            return events.current_completion_snapshot

    def whole(client: openai.OpenAI) -> Any:
        return client.chat.completions.create(model=model, **fields)

    async with serving(settings) as served:
        answers = await ask_together(served, whole, streamed)
    for answer in answers:
        [answered] = answer.choices
        assert answered.finish_reason == "tool_calls", answered
        [call] = answered.message.tool_calls
        custom = call.custom if isinstance(call.custom, dict) else call.custom.to_dict()
        assert (call.type, custom["name"]) == ("custom", "query")
        assert re.fullmatch(PATTERN, custom["input"]), custom
