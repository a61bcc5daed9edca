"""OpenCode 1.18.33 over three APIs; beside the first request, it asks for the conversation's title."""

from __future__ import annotations

import json
from typing import Any

from greenroom.tests.support.clients.agents.agent_day import AgentDay
from greenroom.tests.support.clients.agents.tools import COMMON, Json, cut, further

SYSTEM = "You are an interactive command line tool that helps users with software engineering tasks. " * 20
TITLE = "You are a title generator. You output only a thread title of at most fifty characters."
ASK = "Fix the failing test"
READ = {"file_path": "/project/tests/test_sea.py"}
FILE = "<file>\n00001| def test_sea():\n00002|     assert depth() == 11_034\n</file>"
TOOLS = (*COMMON, *further(5))
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def opencode_chat() -> AgentDay:
    """Return the recorded requests of its provider for OpenAI-compatible chat completions."""
    messages: list[Json] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASK}]
    function = {"name": "Read", "arguments": json.dumps(READ)}
    call = {"id": "call_a1", "type": "function", "function": function}
    looked: list[Json] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a1", "content": FILE},
    ]
    tools = cut([tool.for_chat() for tool in TOOLS])

    def body(messages: list[Json], **more: Any) -> Json:
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": "default", "max_tokens": 32_000, "messages": messages, **stream, **more}

    offered = {"tools": tools, "tool_choice": "auto"}
    title = body([{"role": "system", "content": TITLE}, {"role": "user", "content": ASK}])
    return AgentDay(
        "/v1/chat/completions",
        {"authorization": "Bearer key"},
        body(messages, **offered),
        body([*messages, *looked], **offered),
        title,
    )


def opencode_messages() -> AgentDay:
    """Return the recorded requests of its provider for Anthropic's messages."""
    asked: list[Json] = [{"role": "user", "content": [{"type": "text", "text": ASK, **EPHEMERAL}]}]
    looked: list[Json] = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_a1", "name": "Read", "input": READ}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a1", "content": FILE, **EPHEMERAL},
            ],
        },
    ]
    tools = cut([tool.for_messages() for tool in TOOLS])

    def body(system: str, messages: list[Json], **more: Any) -> Json:
        instructions = {"system": [{"type": "text", "text": system, **EPHEMERAL}]}
        return {"model": "default", "max_tokens": 32_000, **instructions, "messages": messages, **more}

    offered = {"tools": tools, "tool_choice": {"type": "auto"}, "stream": True}
    beta = "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14"
    return AgentDay(
        "/v1/messages",
        {"x_api_key": "key", "anthropic_version": "2023-06-01", "anthropic_beta": beta},
        body(SYSTEM, asked, **offered),
        body(SYSTEM, [*asked, *looked], **offered),
        body(TITLE, asked, stream=True),
    )


def opencode_responses() -> AgentDay:
    """Return the recorded requests of its provider for OpenAI's Responses: items without a type."""
    asked: list[Json] = [
        {"role": "developer", "content": SYSTEM},
        {"role": "user", "content": [{"type": "input_text", "text": ASK}]},
    ]
    looked: list[Json] = [
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_a1", "name": "Read", "arguments": json.dumps(READ)},
        {"type": "function_call_output", "call_id": "call_a1", "output": FILE},
    ]
    tools = cut([tool.for_responses() for tool in TOOLS])

    def body(items: list[Json], **more: Any) -> Json:
        options = {"store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "ses_1"}
        return {
            "model": "default",
            "input": items,
            "max_output_tokens": 32_000,
            **options,
            "stream": True,
            **more,
        }

    offered = {"tools": tools, "tool_choice": "auto"}
    return AgentDay(
        "/v1/responses",
        {"authorization": "Bearer key"},
        body(asked, **offered),
        body([*asked, *looked], **offered),
        body([{"role": "developer", "content": TITLE}, asked[1]]),
    )
