"""Codex 0.169: Responses with namespaces and tools that only a provider runs."""

from __future__ import annotations

import json
from typing import Any

from greenroom.tests.support.clients.agents.agent_day import AgentDay
from greenroom.tests.support.clients.agents.tools import COMMON, Json, cut, further

INSTRUCTIONS = "You are a coding agent that runs in a terminal. You are expected to be precise and helpful. "
COMMAND = json.dumps({"command": "ls -la", "timeout": 10_000})
LISTED = "total 8\n-rw-r--r-- 1 user user 120 test_sea.py\n-rw-r--r-- 1 user user 310 sea.py"


def codex() -> AgentDay:
    """Return the recorded requests: a function call, sent back with its result and the ids of both."""
    functions = [tool.for_responses() for tool in COMMON[:7]]
    members = [tool.for_responses() for tool in further(3)]
    space = {"type": "namespace", "name": "mcp__tracker", "description": "Tracks.", "tools": members}
    tools = [*cut(functions), *cut([space], 1_000), {"type": "web_search", "external_web_access": False}]
    asked = [
        _message("msg_1", "developer", INSTRUCTIONS * 20),
        _message("msg_2", "user", "<environment_context>\n  <cwd>/project</cwd>\n</environment_context>"),
        _message("msg_3", "user", "Fix the failing test"),
    ]
    ran = [
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "Bash", "arguments": COMMAND},
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": LISTED},
    ]
    headers = {"authorization": "Bearer key", "accept": "text/event-stream", "originator": "codex_exec"}
    return AgentDay("/v1/responses", headers, _body(tools, asked), _body(tools, [*asked, *ran]))


def _message(ident: str, role: str, text: str) -> Json:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "id": ident, "role": role, "content": content}


def _body(tools: list[Json], items: list[Any]) -> Json:
    return {
        "model": "default",
        "stream": True,
        "input": items,
        "tools": tools,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "client_metadata": {"x-codex-installation-id": "a"},
    }
