"""Claude Code 2.1.329: messages with late system messages, a billing header and deferred tools."""

from __future__ import annotations

import json
from typing import Any

from greenroom.tests.support.clients.agents.agent_day import AgentDay
from greenroom.tests.support.clients.agents.tools import COMMON, WEB_FETCH, AgentTool, Json, cut, string

HEADERS = {
    "anthropic_version": "2023-06-01",
    "anthropic_beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "mid-conversation-tool-changes-2026-07-01,thinking-token-count-2026-05-13,advanced-tool-use-2025-11-20,"
    "effort-2025-11-24",
    "anthropic_dangerous_direct_browser_access": "true",
    "x_app": "cli",
    "x_claude_code_session_id": "0b7c8a52-3c7b-4c55-9d3f-0d4c1c6f2a11",
    "authorization": "Bearer key",
    "x_api_key": "key",
}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
TOOL_SEARCH = AgentTool(
    "ToolSearch",
    "Fetches the full schemas of deferred tools so that they can be called.",
    {"query": string("Query to find deferred tools"), "max_results": {"type": "number", "default": 5}},
    ("query", "max_results"),
)
PLACEHOLDER = AgentTool("DeferredToolPlaceholder", "Stands for tools that are not loaded yet.", {})
ASKED = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "<system-reminder>\nToday is Sunday.\n</system-reminder>"},
            {"type": "text", "text": "Read the page and fix the test", **EPHEMERAL},
        ],
    },
    {"role": "system", "content": "Deferred tools are available through ToolSearch:\nWebFetch"},
]
SEARCHED = [
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I need the page."},
            {
                "type": "tool_use",
                "id": "toolu_01",
                "name": "ToolSearch",
                "input": {"query": "select:WebFetch"},
            },
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_01",
                "content": [{"type": "tool_reference", "tool_name": "WebFetch"}],
                **EPHEMERAL,
            }
        ],
    },
]


def claude_code() -> AgentDay:
    """Return the recorded requests; the first call is to ToolSearch, whose result names a deferred tool."""
    offered = [tool.for_messages() for tool in (*COMMON, TOOL_SEARCH) if tool is not WEB_FETCH]
    deferred = [tool.for_messages(defer_loading=True) for tool in (PLACEHOLDER, WEB_FETCH)]
    tools = cut([*offered, *deferred])
    first, second = _body(tools[:-1], 1, ASKED), _body(tools, 2, [*ASKED, *SEARCHED])
    return AgentDay("/v1/messages?beta=true", HEADERS, first, second)


def _body(tools: list[Json], turn: int, messages: list[Any]) -> Json:
    header = f"x-anthropic-billing-header: cc_version=2.1.329.d4f; cc_entrypoint=cli; cch={turn:05x};"
    rules = "You are an interactive agent that helps users with software engineering tasks. " * 200
    return {
        "model": "default",
        "messages": messages,
        "system": [
            {"type": "text", "text": header},
            {"type": "text", "text": "You are an agent for the command line.", **EPHEMERAL},
            {"type": "text", "text": rules, **EPHEMERAL},
        ],
        "tools": tools,
        "metadata": {"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s"})},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }
