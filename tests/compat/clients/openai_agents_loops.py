"""OpenAI's Agents SDK: tool loops, streams and structured results."""

import asyncio
import os

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

URL = os.environ["GREENROOM_URL"]
PARIS = "What is the weather in Paris?"
set_tracing_disabled(True)


class Report(BaseModel):
    """The weather of a place."""

    rain: bool
    degrees: int


def make_chat():
    return OpenAIChatCompletionsModel("default", AsyncOpenAI(base_url=f"{URL}/v1", api_key="none"))


def make_responses():
    return OpenAIResponsesModel("default", AsyncOpenAI(base_url=f"{URL}/v1", api_key="none"))


@pytest.fixture(params=[make_chat, make_responses], ids=["chat", "responses"])
def model(request):
    return request.param()


def weather_agent(model):
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """Get the weather for a city."""
        asked.append(city)
        return "Cloudy, 12°C"

    return Agent(name="Weather", model=model, tools=[get_weather]), asked


def run(do):
    return asyncio.run(do)


def test_a_tool_loop(model):
    agent, asked = weather_agent(model)
    result = run(Runner.run(agent, PARIS))
    assert asked == ["Paris"]
    assert "12" in result.final_output


def test_a_streamed_tool_loop(model):
    agent, asked = weather_agent(model)

    async def stream():
        result = Runner.run_streamed(agent, PARIS)
        kinds = [event.type async for event in result.stream_events()]
        return result.final_output, kinds

    output, kinds = run(stream())
    assert "12" in output
    assert asked == ["Paris"]
    assert {"raw_response_event", "run_item_stream_event"} <= set(kinds)


def test_a_conversation(model):
    agent = Agent(name="Greeter", model=model, instructions="You are a helpful assistant.")

    async def talk():
        first = await Runner.run(agent, "Hello!")
        asked = [*first.to_input_list(), {"role": "user", "content": "Thank you!"}]
        return first, await Runner.run(agent, asked)

    first, second = run(talk())
    assert first.final_output
    assert second.final_output


def test_structured_outputs(model):
    agent = Agent(name="Reporter", model=model, output_type=Report)
    assert isinstance(run(Runner.run(agent, "How is the weather?")).final_output, Report)
