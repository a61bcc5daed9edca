"""Anthropic's official client, current or older: all its features for text."""

import asyncio
import os

import anthropic
import pytest
from pydantic import BaseModel

URL = os.environ["GREENROOM_URL"]
HELLO = [{"role": "user", "content": "Hello!"}]
PARIS = {"role": "user", "content": "What is the weather in Paris?"}
SUM = [{"role": "user", "content": "What is 2 + 2?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Get the weather for a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
OPTIONS = {"model": "default", "max_tokens": 200}
MAJOR = int(anthropic.__version__.split(".")[0])


class Report(BaseModel):
    """The schema of a structured answer."""

    rain: bool
    degrees: int


@pytest.fixture
def client():
    with anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0) as client:
        yield client


def test_models(client):
    [model, *_] = client.models.list(limit=10)
    assert client.models.retrieve(model.id).id == model.id


def test_messages(client):
    answer = client.messages.create(**OPTIONS, messages=HELLO, system="You are a helpful assistant.")
    assert answer.stop_reason == "end_turn"
    assert answer.content[0].text
    assert answer.usage.output_tokens > 1
    assert answer._request_id


def test_a_stream_is_the_whole_answer(client):
    whole = client.messages.create(**OPTIONS, messages=HELLO)
    with client.messages.stream(**OPTIONS, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    events = [event.type for event in client.messages.create(**OPTIONS, messages=HELLO, stream=True)]
    assert (events[0], events[-1]) == ("message_start", "message_stop")


def test_a_tool_loop(client):
    asked = client.messages.create(**OPTIONS, messages=[PARIS], tools=[WEATHER])
    [call] = [block for block in asked.content if block.type == "tool_use"]
    assert (asked.stop_reason, call.input) == ("tool_use", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Cloudy, 12°C"}
    messages = [
        PARIS,
        {"role": "assistant", "content": asked.content},
        {"role": "user", "content": [result]},
    ]
    answer = client.messages.create(**OPTIONS, messages=messages, tools=[WEATHER])
    assert "12" in answer.content[0].text


def test_streamed_tool_calls(client):
    with client.messages.stream(**OPTIONS, messages=[PARIS], tools=[WEATHER]) as stream:
        parts = "".join(event.partial_json for event in stream if event.type == "input_json")
        final = stream.get_final_message()
    [call] = [block for block in final.content if block.type == "tool_use"]
    assert call.input == {"city": "Paris"}
    assert "Paris" in parts


def test_a_forced_tool(client):
    answer = client.messages.create(
        **OPTIONS, messages=HELLO, tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"}
    )
    [call] = [block for block in answer.content if block.type == "tool_use"]
    assert set(call.input) == {"city"}


@pytest.mark.skipif(not hasattr(anthropic, "beta_tool"), reason="this version has no tool runner")
def test_the_tool_runner(client):
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Get the weather for a city.

        Args:
            city: Where.
        """
        asked.append(city)
        return "Cloudy, 12°C"

    runner = client.beta.messages.tool_runner(**OPTIONS, messages=[PARIS], tools=[get_weather])
    final = runner.until_done()
    assert asked == ["Paris"]
    assert "12" in final.content[0].text


def test_thoughts_are_signed_and_come_back(client):
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    options = {"model": "default", "max_tokens": 2_000, "thinking": thinking}
    answer = client.messages.create(**options, messages=SUM)
    [thought, text] = answer.content
    assert (thought.type, text.type) == ("thinking", "text")
    assert thought.signature
    more = [
        *SUM,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": "Thank you!"},
    ]
    assert client.messages.create(**options, messages=more).stop_reason == "end_turn"
    with client.messages.stream(**options, messages=SUM) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == ["thinking", "text"]
    assert streamed.content[0].signature


@pytest.mark.skipif(MAJOR < 1, reason="this version has no structured outputs")
def test_structured_outputs(client):
    answer = client.messages.parse(
        **OPTIONS, messages=[{"role": "user", "content": "Weather?"}], output_format=Report
    )
    assert isinstance(answer.parsed_output, Report)


def test_tokens_are_counted_as_usage_has_them(client):
    counted = client.messages.count_tokens(model="default", messages=[PARIS], tools=[WEATHER])
    usage = client.messages.create(**OPTIONS, messages=[PARIS], tools=[WEATHER]).usage
    known = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert counted.input_tokens == usage.input_tokens + known


def test_stop_sequences(client):
    answer = client.messages.create(**OPTIONS, messages=HELLO, stop_sequences=["Greenroom"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "Greenroom")


def test_async():
    async def run():
        async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", max_retries=0) as client:
            whole = await client.messages.create(**OPTIONS, messages=HELLO)
            async with client.messages.stream(**OPTIONS, messages=HELLO) as stream:
                text = "".join([piece async for piece in stream.text_stream])
            return whole.content[0].text, text

    whole, text = asyncio.run(run())
    assert whole == text


def test_errors(client):
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="nobody/knows", max_tokens=5, messages=HELLO)
    assert unknown.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(model="default", max_tokens=-1, messages=HELLO)
    long = [{"role": "user", "content": "sea " * 100_000}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model="default", max_tokens=5, messages=long)
