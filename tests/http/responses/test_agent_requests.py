"""What coding agents send, as it was recorded: a turn, and another after a tool's result."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from greenroom.schemas.settings import Settings
from greenroom.tests.support.http_servers import Server, fetch, serving
from greenroom.tests.support.response_events import read_events

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RESULT = "drwxr-xr-x 4 user staff 128 a file\n" * 8


def function(name: str, words: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    return {
        "type": "function",
        "name": name,
        "description": "does " * words,
        "strict": False,
        "parameters": {**schema, "additionalProperties": False},
    }


def message(role: str, text: str, ident: str | None = None) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": role, "content": parts}
    return item if ident is None else {**item, "id": ident}


CODEX: dict[str, Any] = {
    "model": "qwen3",
    "stream": True,
    "instructions": "You are an agent for the command line. " * 8,
    "input": [
        message("developer", "<permissions>Ask before you write.</permissions>", "msg_a"),
        message("user", "<environment_context>here</environment_context>", "msg_b"),
        message("user", "List the files", "msg_c"),
    ],
    "tools": [
        *(function(name, 4) for name in ("shell", "update_plan", "view", "spawn", "wait", "send", "close")),
        {"type": "namespace", "name": "agents", "description": "Others.", "tools": [function("ask", 3)]},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-session",
    "client_metadata": {"x-codex-installation-id": "i"},
}
CODEX_RESULT = [
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "shell",
        "arguments": '{"cmd":"ls"}',
    },
    {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": RESULT},
]

OPENCODE: dict[str, Any] = {
    "model": "qwen3",
    "stream": True,
    "input": [
        {"role": "developer", "content": "You are an agent. " * 20},
        {"role": "user", "content": [{"type": "input_text", "text": "List the files"}]},
    ],
    "tools": [function(f"tool_{index}", 2) for index in range(25)],
    "tool_choice": "auto",
    "store": False,
    "prompt_cache_key": "ses_1",
    "max_output_tokens": 32_000,
}
OPENCODE_RESULT = [
    {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "call_1", "name": "tool_1", "arguments": '{"cmd":"ls"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": RESULT}]},
]


async def send(server: Server, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the response that ends the stream, whose prompt must be as long as counted."""
    answer = await fetch(server, "POST", "/v1/responses", asked)
    assert answer.status == 200, answer.body
    events = read_events(answer.body)
    for event in events:
        EVENTS.validate_python(event)
    response: dict[str, Any] = events[-1]["response"]
    counted = (await fetch(server, "POST", "/v1/responses/input_tokens", asked)).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": response["usage"]["input_tokens"]}
    assert response["output"]
    return response


@pytest.mark.parametrize(("asked", "result"), [(CODEX, CODEX_RESULT), (OPENCODE, OPENCODE_RESULT)])
async def test_an_agents_turns_are_answered_and_found_in_the_cache(
    settings: Settings, asked: dict[str, Any], result: list[Any]
) -> None:
    async with serving(attrs.evolve(settings, max_context=16_384, max_tokens=8)) as served:
        first = await send(served.server, {**asked, "max_output_tokens": 8})
        assert first["tools"] == asked["tools"]
        assert first["usage"]["input_tokens"] > 500
        assert first["prompt_cache_key"] == asked["prompt_cache_key"]
        again = await send(
            served.server, {**asked, "input": [*asked["input"], *result], "max_output_tokens": 8}
        )
    # Whatever was read for one turn is known in the next, but for the mark at which an answer begins.
    cached = again["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["input_tokens"] - 8


async def test_more_than_the_context_holds_may_be_asked_for(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, max_context=64)) as served:
        asked = {**OPENCODE, "input": "one two three", "tools": []}
        response = await send(served.server, asked)
    assert response["status"] in ("completed", "incomplete")
    assert response["max_output_tokens"] == 32_000
