"""Agents of Pydantic AI: tools, structured results and streams, in each protocol."""

import asyncio
import os

import pytest
from anthropic import AsyncAnthropic
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

URL = os.environ["GREENROOM_URL"]
PARIS = "What is the weather in Paris?"


class Report(BaseModel):
    """The weather of a place."""

    rain: bool
    degrees: int


def make_chat():
    return OpenAIChatModel("default", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="none"))


def make_responses():
    return OpenAIResponsesModel("default", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="none"))


def make_messages():
    return AnthropicModel(
        "default", provider=AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=URL, api_key="none"))
    )


@pytest.fixture(params=[make_chat, make_responses, make_messages], ids=["chat", "responses", "messages"])
def model(request):
    return request.param()


def weather_agent(model):
    agent = Agent(model)
    asked = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather for a city."""
        asked.append(city)
        return "Cloudy, 12°C"

    return agent, asked


def test_a_tool_loop(model):
    agent, asked = weather_agent(model)
    result = agent.run_sync(PARIS)
    assert asked == ["Paris"]
    assert "12" in result.output
    assert result.usage().requests == 2 if callable(result.usage) else result.usage.requests == 2


def test_a_streamed_tool_loop(model):
    agent, asked = weather_agent(model)

    async def run():
        async with agent.run_stream(PARIS) as stream:
            return [piece async for piece in stream.stream_text(delta=True)]

    assert "12" in "".join(asyncio.run(run()))
    assert asked == ["Paris"]


def test_a_conversation(model):
    agent = Agent(model, instructions="You are a helpful assistant.")
    first = agent.run_sync("Hello!")
    second = agent.run_sync("Thank you!", message_history=first.new_messages())
    assert first.output
    assert second.output


@pytest.mark.parametrize("way", [NativeOutput, ToolOutput])
def test_structured_outputs(model, way):
    if way is NativeOutput and isinstance(model, AnthropicModel):
        pytest.skip("known to this client for Claude's names only")
    result = Agent(model, output_type=way(Report)).run_sync("How is the weather?")
    assert isinstance(result.output, Report)
