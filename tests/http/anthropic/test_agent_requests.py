"""Recorded requests of a coding agent: three turns with deferred tools and late system messages."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import attrs

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.anthropic_clients import COUNT, MESSAGES, accumulated, events_of
from greenroom.tests.support.servers.http_servers import Server, connected, fetch, serving

HEADERS = {
    "anthropic_version": "2023-06-01",
    "anthropic_beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "mid-conversation-tool-changes-2026-07-01,advanced-tool-use-2025-11-20,effort-2025-11-24",
    "x_app": "cli",
    "authorization": "Bearer key",
    "x_api_key": "key",
}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
OPTIONS = {
    "model": "qwen3",
    "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s"})},
    "thinking": {"type": "adaptive", "display": "omitted"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "stream": True,
}


def system(turn: int) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.329; cch={turn:05x};"},
        {"type": "text", "text": "You are an agent for the command line.", **EPHEMERAL},
        {"type": "text", "text": "Mind the files of the user. " * 20, **EPHEMERAL},
    ]


def tool(name: str, words: int, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"about": {"type": "string"}}, "required": ["about"]}
    return {"name": name, "description": "does " * words, "input_schema": schema, **more}


NAMES = ["Bash", "Read", "Edit", "ToolSearch", *(f"mcp__tool_{i}" for i in range(20))]
SERVER_TOOL = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
DEFERRED = [tool(name, 2, defer_loading=True) for name in ("DeferredToolPlaceholder", "WebFetch")]


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, *content: Any) -> dict[str, Any]:
    return user({"type": "tool_result", "tool_use_id": call_id, "content": list(content), **EPHEMERAL})


async def send(server: Server, turn: int, messages: list[Any]) -> Any:
    """Send one turn; return its message, after checking its prompt's length against the token count."""
    tools = [*(tool(name, 1) for name in NAMES), SERVER_TOOL, *DEFERRED]
    asked = {**OPTIONS, "system": system(turn), "messages": messages, "tools": tools}
    async with connected(server, seconds=300.0) as client:
        body = json.dumps({**asked, "max_tokens": 8}).encode()
        await client.request("POST", f"{MESSAGES}?beta=true", body, **HEADERS)
        answer = await client.receive_response()
    assert answer.status == 200, answer.body
    events = events_of(answer.body)
    assert events[-1]["type"] == "message_stop"
    message = accumulated(events)
    counted = (await fetch(server, "POST", f"{COUNT}?beta=true", asked, **HEADERS)).json()
    assert counted == {"input_tokens": length(message)}
    assert message.content
    return message


async def test_an_agents_turns_are_answered_and_found_in_the_cache(settings: Settings) -> None:
    messages = [
        user(text("<system-reminder>Today.</system-reminder>"), text("Fix the test", **EPHEMERAL)),
        {"role": "system", "content": "Deferred tools: WebFetch"},
    ]
    async with serving(attrs.evolve(settings, max_context=16_384)) as served:
        first = await send(served.server, 1, messages)
        assert first.usage.cache_read_input_tokens == 0
        assert length(first) > 1_200
        messages += [
            {"role": "assistant", "content": [use("ToolSearch", "toolu_a", query="fetch")]},
            result("toolu_a", {"type": "tool_reference", "tool_name": "WebFetch"}),
        ]
        second = await send(served.server, 2, messages)
        messages += [
            {"role": "assistant", "content": [text("I look."), use("WebFetch", "toolu_b", url="https://a")]},
            result("toolu_b", text("The page says so.")),
            {"role": "system", "content": [text("The user watches.")]},
        ]
        third = await send(served.server, 3, messages)
    # The next turn finds each turn's whole prompt in the cache.
    for before, after in pairwise((first, second, third)):
        assert after.usage.cache_read_input_tokens >= length(before) - 1
        assert after.usage.cache_read_input_tokens >= 0.9 * length(after)


def length(message: Any) -> int:
    """Return the number of the prompt's tokens."""
    usage = message.usage
    return int(usage.input_tokens + usage.cache_read_input_tokens + (usage.cache_creation_input_tokens or 0))
