"""Ollama's official client."""

import asyncio
import os

import ollama
import pytest
from pydantic import BaseModel

URL = os.environ["GREENROOM_URL"]
HELLO = [{"role": "user", "content": "Hello!"}]
PARIS = {"role": "user", "content": "What is the weather in Paris?"}
SUM = [{"role": "user", "content": "What is 2 + 2?"}]


class Report(BaseModel):
    """The schema of a structured answer."""

    rain: bool
    degrees: int


def get_weather(city: str) -> str:
    """Get the weather for a city.

    Args:
        city: Where.
    """
    return "Cloudy, 12°C"


@pytest.fixture
def client():
    return ollama.Client(host=URL)


def test_models(client):
    [model, *_] = client.list().models
    assert "completion" in client.show(model.model).capabilities


def test_a_stream_is_the_whole_answer(client):
    whole = client.chat("default", HELLO, options={"temperature": 0})
    pieces = list(client.chat("default", HELLO, options={"temperature": 0}, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert whole.message.content
    assert (whole.done_reason, pieces[-1].done_reason) == ("stop", "stop")
    assert pieces[-1].eval_count == whole.eval_count > 0


def test_generate(client):
    whole = client.generate("default", "Hello!")
    pieces = list(client.generate("default", "Hello!", stream=True))
    assert "".join(piece.response for piece in pieces) == whole.response != ""


def test_a_tool_loop(client):
    asked = client.chat("default", [PARIS], tools=[get_weather])
    [call] = asked.message.tool_calls
    assert (call.function.name, dict(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather(**call.function.arguments)}
    answer = client.chat("default", [PARIS, asked.message, result], tools=[get_weather])
    assert "12" in answer.message.content


def test_streamed_tool_calls(client):
    pieces = client.chat("default", [PARIS], tools=[get_weather], stream=True)
    [call] = [call for piece in pieces for call in piece.message.tool_calls or ()]
    assert dict(call.function.arguments) == {"city": "Paris"}


def test_thoughts(client):
    answer = client.chat("default", SUM, think=True)
    assert answer.message.thinking
    assert "4" in answer.message.content
    assert not client.chat("default", SUM, think=False).message.thinking


def test_structured_outputs(client):
    asked = [{"role": "user", "content": "Weather?"}]
    answer = client.chat("default", asked, format=Report.model_json_schema(), think=False)
    assert Report.model_validate_json(answer.message.content)


def test_async():
    async def run():
        client = ollama.AsyncClient(host=URL)
        whole = await client.chat("default", HELLO)
        stream = await client.chat("default", HELLO, stream=True)
        return whole.message.content, "".join([piece.message.content or "" async for piece in stream])

    whole, text = asyncio.run(run())
    assert whole == text


def test_errors(client):
    with pytest.raises(ollama.ResponseError) as unknown:
        client.chat("nobody/knows", HELLO)
    assert unknown.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as missing:
        client.embed("default", "text")
    assert missing.value.status_code == 400
