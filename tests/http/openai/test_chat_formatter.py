"""`functions` and `function_call`, as used by clients from before November 2023."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.http.openai.chat_routes import parse_chat_request
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.openai_chat import OPENAI, ChatRequest
from greenroom.testing import ScriptedEngines
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
USER = {"role": "user", "content": "Rain in Rom?"}
TOOLS = [{"type": "function", "function": WEATHER}]
ARGUMENTS = json.dumps({"city": "Rom"})


def calling(adapter: Adapter) -> str:
    """Return a text with two calls; the legacy protocol can report only one."""
    calls = [ParsedCall("weather", json.dumps({"city": city})) for city in ("Rom", "Oslo")]
    return render_calls(adapter.tool_parser, calls)


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)


async def test_a_call_comes_back_as_a_function_call(settings: Settings) -> None:
    asked: Any = {"model": "qwen3", "messages": [USER], "functions": [WEATHER]}
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        whole = await ask(served, lambda client: client.chat.completions.create(**asked))
        chunks = await ask(served, lambda client: list(client.chat.completions.create(**asked, stream=True)))
    [choice] = whole.choices
    assert (choice.finish_reason, choice.message.tool_calls) == ("function_call", None)
    called = choice.message.function_call
    assert (called.name, json.loads(called.arguments)) == ("weather", {"city": "Rom"})
    deltas = [chunk.choices[0].delta for chunk in chunks]
    pieces = [delta.function_call for delta in deltas if delta.function_call]
    assert [piece.name for piece in pieces if piece.name] == ["weather"]
    assert json.loads("".join(piece.arguments for piece in pieces)) == {"city": "Rom"}
    assert not any(delta.tool_calls for delta in deltas)
    assert chunks[-1].choices[0].finish_reason == "function_call"


async def test_a_function_is_forced(settings: Settings, shared: Shared) -> None:
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    forced = {"functions": [{"name": "now", "parameters": nothing}], "function_call": {"name": "now"}}
    body = {"model": "qwen3", "messages": [USER], "enable_thinking": False, **forced}
    served = shared(settings)
    answer = await fetch(served.server, "POST", "/v1/chat/completions", body)
    [choice] = answer.json()["choices"]
    assert (choice["finish_reason"], choice["message"]["function_call"]["name"]) == ("function_call", "now")
    assert json.loads(choice["message"]["function_call"]["arguments"]) == {}


def parsed(messages: list[Any], **fields: Any) -> ChatInput:
    body = {"model": "m", "messages": messages, **fields}
    chat = parse_chat_request(OPENAI.structure(body, ChatRequest), body, "r").input
    assert isinstance(chat, ChatInput)
    return chat


def test_a_history_of_functions_is_one_of_tools() -> None:
    call = {"name": "weather", "arguments": ARGUMENTS}
    old = [
        USER,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "weather", "content": "wet"},
    ]
    new = [
        USER,
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "wet"},
    ]
    choice = {"type": "function", "function": {"name": "weather"}}
    tools = {"tools": [{"type": "function", "function": WEATHER}], "parallel_tool_calls": False}
    assert parsed(old, functions=[WEATHER], function_call={"name": "weather"}) == parsed(
        new, **tools, tool_choice=choice
    )
    assert parsed(old).messages == parsed(new).messages


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": [{"name": ""}]}, "functions[0].name"),
        ({"functions": [WEATHER], "function_call": "required"}, "function_call"),
        ({"functions": [WEATHER], "function_call": {}}, "function_call.name"),
        ({"functions": [WEATHER], "function_call": {"name": ""}}, "function_call.name"),
        ({"functions": [WEATHER], "function_call": {"name": "news"}}, "function_call.name"),
        ({"functions": [WEATHER], "tool_choice": "required"}, "functions"),
        ({"function_call": {"name": "weather"}}, "function_call"),
        ({"function_call": 5}, "function_call"),
        ({"tools": TOOLS, "function_call": "none"}, "function_call"),
        ({"functions": [WEATHER], "tools": TOOLS}, "functions"),
        ({"messages": [USER, {"role": "function", "name": "weather", "content": "wet"}]}, "messages[1].name"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parsed(**{"messages": [USER], **fields})
    assert (caught.value.problem.status, caught.value.problem.param) == (400, param)


def test_no_functions_are_none() -> None:
    asked = {"tools": TOOLS, "tool_choice": "required"}
    assert parsed([USER], functions=[], function_call="auto", **asked) == parsed([USER], **asked)
    assert parsed([USER], function_call="none") == parsed([USER])


async def test_no_functions_leave_the_answer_in_the_words_of_tools(settings: Settings) -> None:
    asked: Any = {"model": "qwen3", "messages": [USER], "functions": [], "tools": TOOLS}
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        whole = await ask(served, lambda client: client.chat.completions.create(**asked))
    [choice] = whole.choices
    assert (choice.finish_reason, choice.message.function_call) == ("tool_calls", None)
    assert [call.function.name for call in choice.message.tool_calls] == ["weather", "weather"]
