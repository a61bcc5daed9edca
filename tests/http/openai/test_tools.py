"""Reasoning and tool calls, from a model's text to the objects of OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import ScriptedEngines
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import serving

THOUGHT = "Two cities, so two calls."
CALLS = [("get_weather", {"city": "Rom"}), ("get_weather", {"city": "Zürich"})]
MESSAGES: list[Any] = [{"role": "user", "content": "Weather in Rom and Zürich?"}]


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""

    city: str


TOOLS: list[Any] = [openai.pydantic_function_tool(GetWeather, name="get_weather")]


def calling(adapter: Adapter) -> str:
    """Return reasoning, a sentence and two calls in the model's own format."""
    calls = [ParsedCall(name, json.dumps(arguments)) for name, arguments in CALLS]
    return f"<think>\n{THOUGHT}\n</think>\n\nOne moment.\n" + render_calls(adapter.tool_parser, calls)


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)


def called(message: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]


async def test_calls_and_thoughts_come_back_whole(settings: Settings) -> None:
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        answer: Any = await ask(
            served,
            lambda client: client.chat.completions.create(model="qwen3", messages=MESSAGES, tools=TOOLS),
        )
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert called(choice.message) == CALLS
    assert len({call.id for call in choice.message.tool_calls}) == 2
    assert choice.message.reasoning_content.strip() == choice.message.reasoning.strip() == THOUGHT
    assert choice.message.content.strip() == "One moment."
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


async def test_openais_stream_helper_follows_every_call(settings: Settings) -> None:
    def stream(client: openai.OpenAI) -> Any:
        events = []
        with client.chat.completions.stream(model="qwen3", messages=MESSAGES, tools=TOOLS) as stream:
            for event in stream:
                events.append(event)
            return events, stream.get_final_completion()

    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        events, final = await ask(served, stream)
    [choice] = final.choices
    assert choice.finish_reason == "tool_calls"
    assert called(choice.message) == CALLS
    assert [call.function.parsed_arguments.city for call in choice.message.tool_calls] == ["Rom", "Zürich"]
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.index for event in done] == [0, 1]
    deltas = [
        event.chunk.choices[0].delta for event in events if event.type == "chunk" and event.chunk.choices
    ]
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert thought.strip() == THOUGHT
    assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == thought
    fragments = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [(call.index, bool(call.id)) for call in fragments if call.function.name] == [(0, True), (1, True)]
    assert not [call for call in fragments if call.id and not call.function.name]


async def test_the_conversation_goes_on_with_the_results(settings: Settings) -> None:
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        first: Any = await ask(
            served,
            lambda client: client.chat.completions.create(model="qwen3", messages=MESSAGES, tools=TOOLS),
        )
        calls = first.choices[0].message.tool_calls
        history = [
            *MESSAGES,
            first.choices[0].message,
            *({"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls),
        ]
        second: Any = await ask(
            served,
            lambda client: client.chat.completions.create(model="qwen3", messages=history, tools=TOOLS),
        )
        assert second.usage.prompt_tokens > first.usage.prompt_tokens


@pytest.mark.parametrize("extra", [{}, {"tools": TOOLS, "tool_choice": "none"}])
async def test_without_tools_a_call_is_text(settings: Settings, extra: dict[str, Any]) -> None:
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        answer: Any = await ask(
            served, lambda client: client.chat.completions.create(model="qwen3", messages=MESSAGES, **extra)
        )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.tool_calls is None
    assert "get_weather" in answer.choices[0].message.content
