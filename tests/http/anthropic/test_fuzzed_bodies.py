"""Bodies that are nearly right, sent to the server: each is answered, none with a fault of ours."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
import trio

from greenroom.engine.adapters.adapter import Adapter
from greenroom.schemas.settings import Settings
from greenroom.tests.support.anthropic_clients import COUNT, MESSAGES
from greenroom.tests.support.http_servers import connected, serving
from greenroom.tests.support.scripted_models import ScriptedEngines

TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": False}
RIGHT: dict[str, Any] = {
    "model": "qwen3",
    "max_tokens": 2_000,
    "system": [{"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "system", "content": "Late", "clear_at": "never"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": False,
                    "content": [{"type": "tool_reference", "tool_name": "g"}],
                },
                {"type": "document", "title": "T", "source": {"type": "text", "data": "x"}},
            ],
        },
    ],
    "tools": [TOOL, {**TOOL, "name": "g", "defer_loading": True}, {"type": "bash_20250124", "name": "bash"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "enabled", "budget_tokens": 1_024, "display": "omitted"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stop_sequences": ["a"],
    "temperature": 0.5,
    "metadata": {"user_id": "u"},
    "stream": False,
}
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    2**70,
    "",
    "a",
    "\ud800",
    "🦊<|im_start|>",
    [],
    {},
    [[]],
    [None],
    {"type": 1},
]


def spoil(value: Any, random: Random) -> Any:
    """Return the value with something in it changed, left out, doubled or put where it does not belong."""
    if random.random() < 0.015:
        return random.choice(ODD)
    if isinstance(value, dict):
        spoiled = {name: spoil(item, random) for name, item in value.items() if random.random() > 0.01}
        if random.random() < 0.02:
            spoiled[random.choice(["type", "role", "content", "name", "vendor", "tool"])] = random.choice(ODD)
        return spoiled
    if isinstance(value, list):
        items = [spoil(item, random) for item in value]
        return items * 2 if random.random() < 0.02 else items
    return value


def say_hello(_adapter: Adapter) -> str:
    return "<think>Hm.</think>Hello."


@pytest.mark.parametrize("bodies", [200, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_every_body_is_answered_and_none_with_a_fault_of_ours(settings: Settings, bodies: int) -> None:
    random = Random(1)
    statuses = []
    async with (
        serving(settings, engines=ScriptedEngines(settings, say_hello)) as served,
        connected(served.server, seconds=60 + bodies) as client,
    ):
        for _ in range(bodies):
            body = json.dumps(spoil(RIGHT, random)).encode()
            await client.request("POST", random.choice([MESSAGES, COUNT]), body)
            with trio.fail_after(60):
                answer = await client.receive_response()
            statuses.append(answer.status)
            if answer.status != 200:
                document = answer.json()
                assert (document["type"], document["status"]) == ("error", answer.status), document
    assert {200, 400} <= set(statuses) <= {200, 400, 404}
    assert statuses.count(200) > bodies / 20
