"""Cline's command line: chat completions with twenty-five tools."""

from __future__ import annotations

import json

from greenroom.tests.support.clients.agents.agent_day import AgentDay
from greenroom.tests.support.clients.agents.tools import COMMON, Json, cut, further

ASKED: list[Json] = [
    {"role": "system", "content": "You are Cline, a highly skilled software engineer. " * 30},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "<task>\nFix the failing test\n</task>"},
            {"type": "text", "text": "<environment_details>\n/project\n</environment_details>"},
        ],
    },
]
PATTERN = json.dumps({"pattern": "**/test_*.py"})
GLOBBED: list[Json] = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "Glob", "arguments": PATTERN}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": "tests/test_sea.py"}]},
]


def cline() -> AgentDay:
    """Return the recorded requests."""
    tools = cut([tool.for_chat() for tool in (*COMMON, *further(25 - len(COMMON)))])

    def body(messages: list[Json]) -> Json:
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": "default", "messages": messages, "tools": tools, "tool_choice": "auto", **stream}

    headers = {"authorization": "Bearer key", "http_referer": "https://cline.bot", "x_title": "Cline"}
    return AgentDay("/v1/chat/completions", headers, body(ASKED), body([*ASKED, *GLOBBED]))
