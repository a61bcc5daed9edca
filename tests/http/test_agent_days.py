"""The first two recorded requests of coding agents: streams are valid, and the second prompt is cached."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.agents.agent_day import AgentDay
from greenroom.tests.support.clients.agents.claude_code import claude_code
from greenroom.tests.support.clients.agents.cline import cline
from greenroom.tests.support.clients.agents.codex import codex
from greenroom.tests.support.clients.agents.opencode import (
    opencode_chat,
    opencode_messages,
    opencode_responses,
)
from greenroom.tests.support.clients.agents.tools import TOOL_TOKENS
from greenroom.tests.support.clients.anthropic_clients import accumulated, events_of
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.models.tiny_kinds import VOCABULARY
from greenroom.tests.support.servers.http_servers import Served, connected, serving

KNOWN = 0.95
"""Minimum fraction of the second prompt's tokens to be found in the cache."""

Prompt = tuple[int, int]
"""Number of prompt tokens, and of the cached ones."""


@pytest.fixture
async def served(tiny_model: Callable[..., Path], tmp_path: Path) -> AsyncIterator[Served]:
    """Run a server whose model ends its answers early: agents allow more tokens than the context has."""
    folder = tmp_path / "short"
    shutil.copytree(tiny_model("qwen3", num_hidden_layers=1), folder)
    ends = list(range(2, VOCABULARY, 8))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    async with serving(Settings(models=(str(folder),), max_context=16_384)) as served:
        yield served


def read_chat(sent: bytes) -> Prompt:
    """Check a stream with the client's own helper; return the prompt's usage."""
    *chunks, done, end = sent.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    state: Any = ChatCompletionStreamState(input_tools=omit, response_format=omit)
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate_json(chunk.removeprefix("data: ")))
    completion = state.get_final_completion()
    assert completion.choices[0].finish_reason in ("stop", "length", "tool_calls")
    return completion.usage.prompt_tokens, completion.usage.prompt_tokens_details.cached_tokens


def read_messages(sent: bytes) -> Prompt:
    """Check a stream with the client's own helper; return the prompt's usage."""
    events = events_of(sent)
    assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
    message = accumulated(events)
    assert message.content
    assert message.stop_reason
    cached = message.usage.cache_read_input_tokens or 0
    written = message.usage.cache_creation_input_tokens or 0
    return message.usage.input_tokens + cached + written, cached


def read_response(sent: bytes) -> Prompt:
    """Check a stream, its ids and indexes with the client's own helper; return the prompt's usage."""
    *events, done, end = sent.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for number, event in enumerate(events):
        name, data = event.split("\n")
        decoded = json.loads(data.removeprefix("data: "))
        assert name == f"event: {decoded['type']}"
        assert decoded["sequence_number"] == number
        last = EVENT.validate_python(decoded)
        state.handle_event(last)
    assert last.type in ("response.completed", "response.incomplete")
    usage = last.response.usage
    return usage.input_tokens, usage.input_tokens_details.cached_tokens


EVENT: Any = TypeAdapter(ResponseStreamEvent)
READERS = {
    "/v1/chat/completions": read_chat,
    "/v1/messages": read_messages,
    "/v1/responses": read_response,
}


async def send(served: Served, day: AgentDay, body: Mapping[str, Any]) -> Prompt:
    async with connected(served.server, seconds=300) as client:
        await client.request("POST", day.path, json.dumps(body).encode(), **day.headers)
        answer = await client.receive_response()
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/event-stream")
    return READERS[day.path.partition("?")[0]](answer.body)


@pytest.mark.parametrize(
    "make_day", [claude_code, codex, opencode_chat, *deep_only(opencode_messages, opencode_responses, cline)]
)
async def test_an_agent_is_answered_and_what_it_said_is_known(
    make_day: Callable[[], AgentDay], served: Served
) -> None:
    day = make_day()
    async with trio.open_nursery() as nursery:
        if day.beside is not None:
            nursery.start_soon(send, served, day, day.beside)
        before, _ = await send(served, day, day.first)
    prompt, cached = await send(served, day, day.second)
    assert TOOL_TOKENS < before < prompt
    assert cached >= KNOWN * prompt
