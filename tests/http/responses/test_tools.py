"""Reasoning and tool calls, from a model's text to the objects of OpenAI's client, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import openai
import pydantic
import pytest
import structlog

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.http.responses.tools import parse_tools
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.responses_items import HostedTool, ToolParam
from greenroom.testing import ScriptedEngines
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import serving
from greenroom.tests.support.servers.shared_servers import Shared

THOUGHT = "Two cities, so two calls."
ASKED = "Weather in Rom and Zürich?"


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""

    city: Literal["Rom", "Zürich"]


class City(pydantic.BaseModel):
    """A city or a village."""

    kind: Literal["city", "village"]
    inhabitants: int = pydantic.Field(ge=0, le=10**9)
    coastal: bool


def function_tool() -> Any:
    chat_tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    return {"type": "function", **chat_tool["function"]}


CUSTOM: Any = {"type": "custom", "name": "shell", "description": "Runs a line."}
TOOLS: list[Any] = [function_tool(), CUSTOM, {"type": "web_search"}]


def calling(adapter: Adapter) -> str:
    """Return reasoning, a sentence and two calls in the model's own format."""
    calls = [
        ParsedCall("get_weather", json.dumps({"city": "Rom"})),
        ParsedCall("shell", json.dumps({"input": "curl 'Zürich'\n"})),
    ]
    return f"<think>\n{THOUGHT}\n</think>\n\nOne moment.\n" + render_calls(adapter.tool_parser, calls)


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)


async def test_a_loop_of_calls_through_the_client(settings: Settings) -> None:
    asked: dict[str, Any] = {
        "model": "qwen3",
        "tools": TOOLS,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
    }

    def loop(client: openai.OpenAI) -> tuple[Any, list[Any], Any]:
        history: list[Any] = [{"role": "user", "content": ASKED}]
        with client.responses.stream(input=history, **asked) as stream:
            events = list(stream)
            first = stream.get_final_response()
        history += [item.to_dict() for item in first.output]
        for item in first.output:
            if item.type in ("function_call", "custom_tool_call"):
                output = {"type": f"{item.type}_output", "call_id": item.call_id, "output": "Sunny."}
                history.append(output)
        return first, events, client.responses.create(input=history, **asked)

    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        first, events, second = await ask(served, loop)
    thought, said, call, custom = first.output
    assert thought.summary[0].text.strip() == THOUGHT
    assert thought.encrypted_content
    assert said.content[0].text.strip() == "One moment."
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Rom"})
    assert call.parsed_arguments == {"city": "Rom"}
    assert (custom.type, custom.name, custom.input) == ("custom_tool_call", "shell", "curl 'Zürich'\n")
    pieces = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(pieces) == custom.input
    assert [item.type for item in second.output] == [item.type for item in first.output]
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.output_tokens_details.reasoning_tokens > 0


async def test_parsed_answers_validate(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    answer: Any = await ask(
        served,
        lambda client: client.responses.parse(
            model="qwen3", input="Where?", text_format=City, reasoning={"effort": "none"}
        ),
    )
    assert isinstance(answer.output_parsed, City)
    assert answer.status == "completed"
    assert answer.text.format.name == "City"


CHOICES: list[Any] = [
    "required",
    {"type": "function", "name": "get_weather"},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
]


async def test_a_choice_of_tools_is_kept(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    for choice in CHOICES:
        asked: dict[str, Any] = {"tools": [function_tool()], "tool_choice": choice}
        answer = await ask(served, partial(forced_call, **asked))
        [call] = answer.output
        GetWeather.model_validate_json(call.arguments)
        assert answer.to_dict()["tool_choice"] == choice


def forced_call(client: openai.OpenAI, **asked: Any) -> Any:
    without_reasoning: dict[str, Any] = {"reasoning": {"effort": "none"}, "parallel_tool_calls": False}
    return client.responses.create(model="qwen3", input=ASKED, **without_reasoning, **asked)


async def test_log_probabilities_come_where_they_are_included(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    answer: Any = await ask(
        served,
        lambda client: client.responses.create(
            model="qwen3",
            input=ASKED,
            max_output_tokens=6,
            include=["message.output_text.logprobs"],
            top_logprobs=2,
            reasoning={"effort": "none"},
        ),
    )
    [part] = answer.output[-1].content
    assert part.logprobs
    assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in part.logprobs)


def test_tools_that_only_openai_runs_are_left_out_with_a_line_in_the_log_of_each_request() -> None:
    kinds = ["search", "search", "x" * 100]
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            assert parse_tools([ToolParam(HostedTool(kind), {"type": kind}) for kind in kinds]) == ()
        parse_tools([ToolParam(HostedTool(f"kind {number}"), {}) for number in range(200)])
        assert parse_tools([]) == ()
    lines = [(line["log_level"], line["tools"]) for line in logs if line["event"] == "tools left out"]
    assert lines[:2] == [("debug", ["search", "x" * 40])] * 2
    assert [len(tools) for _, tools in lines[2:]] == [50]
