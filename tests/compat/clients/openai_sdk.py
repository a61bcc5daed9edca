"""OpenAI's official client, current or older: all its features for text."""

import asyncio
import json
import os
from enum import StrEnum

import openai
import pytest
from pydantic import BaseModel

URL = os.environ["GREENROOM_URL"]
HELLO = [{"role": "user", "content": "Hello!"}]
PARIS = {"role": "user", "content": "What is the weather in Paris?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Sky(StrEnum):
    """States of the sky in a report."""

    clear = "clear"
    cloudy = "cloudy"


class Report(BaseModel):
    """The schema of a structured answer."""

    sky: Sky
    rain: bool


class GetWeather(BaseModel):
    """Get the weather for a city."""

    city: str


@pytest.fixture
def client():
    with openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
        yield client


def run_async(do):
    async def run():
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
            return await do(client)

    return asyncio.run(run())


def test_models(client):
    [model, *_] = client.models.list()
    assert client.models.retrieve(model.id).id == model.id


def test_chat(client):
    answer = client.chat.completions.create(model="default", messages=HELLO)
    [choice] = answer.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_a_stream_is_the_whole_answer(client):
    whole = client.chat.completions.create(model="default", messages=HELLO)
    chunks = list(
        client.chat.completions.create(
            model="default", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage or chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_streaming_helper(client):
    with client.chat.completions.stream(model="default", messages=HELLO) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content


def test_structured_outputs(client):
    asked = [{"role": "user", "content": "How is the sky?"}]
    answer = client.chat.completions.parse(model="default", messages=asked, response_format=Report)
    assert isinstance(answer.choices[0].message.parsed, Report)
    with client.chat.completions.stream(model="default", messages=asked, response_format=Report) as stream:
        final = stream.until_done().get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Report)


def test_a_tool_loop(client):
    asked = client.chat.completions.create(model="default", messages=[PARIS], tools=[WEATHER])
    message = asked.choices[0].message
    [call] = message.tool_calls
    assert asked.choices[0].finish_reason == "tool_calls"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "Cloudy, 12°C"}
    answer = client.chat.completions.create(
        model="default", messages=[PARIS, message, result], tools=[WEATHER]
    )
    assert "12" in answer.choices[0].message.content


def test_streamed_tool_calls(client):
    with client.chat.completions.stream(model="default", messages=[PARIS], tools=[WEATHER]) as stream:
        kinds = {event.type for event in stream}
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert "tool_calls.function.arguments.done" in kinds
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_a_forced_tool_that_a_class_describes(client):
    answer = client.chat.completions.parse(
        model="default",
        messages=[PARIS],
        tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    [call] = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_choices_logprobs_and_stops(client):
    answer = client.chat.completions.create(
        model="default", messages=HELLO, n=2, logprobs=True, top_logprobs=3, max_tokens=8, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 3
    stopped = client.chat.completions.create(model="default", messages=HELLO, stop=["Greenroom"])
    assert "Greenroom" not in stopped.choices[0].message.content


def test_completions(client):
    asked = {"model": "default", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    whole = client.completions.create(**asked)
    assert "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)) == (
        whole.choices[0].text
    )


def test_async(client):
    async def do(client):
        whole = await client.chat.completions.create(model="default", messages=HELLO)
        stream = await client.chat.completions.create(model="default", messages=HELLO, stream=True)
        text = "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])
        parsed = await client.chat.completions.parse(model="default", messages=HELLO, response_format=Report)
        return whole.choices[0].message.content, text, parsed.choices[0].message.parsed

    whole, text, parsed = run_async(do)
    assert whole == text
    assert isinstance(parsed, Report)


def test_many_at_once(client):
    async def do(client):
        asked = [client.chat.completions.create(model="default", messages=HELLO) for _ in range(12)]
        return await asyncio.gather(*asked)

    assert {answer.choices[0].finish_reason for answer in run_async(do)} == {"stop"}


def test_errors(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody/knows", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="default", messages=HELLO, temperature=7)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "sea " * 100_000}]
        )
    assert long.value.code == "context_length_exceeded"
    assert long.value.request_id
