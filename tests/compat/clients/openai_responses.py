"""OpenAI's official client over Responses, current or older."""

import asyncio
import json
import os
import time

import openai
import pytest
from pydantic import BaseModel

URL = os.environ["GREENROOM_URL"]
PARIS = {"role": "user", "content": "What is the weather in Paris?"}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather for a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Report(BaseModel):
    """The schema of a structured answer."""

    rain: bool
    degrees: int


@pytest.fixture
def client():
    with openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_response(client):
    answer = client.responses.create(model="default", input="Hello!", instructions="Be brief.")
    assert answer.status == "completed"
    assert answer.output_text
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_a_stream_is_the_whole_answer(client):
    whole = client.responses.create(model="default", input="Hello!")
    events = list(client.responses.create(model="default", input="Hello!", stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_streaming_helper(client):
    with client.responses.stream(model="default", input="What is 2 + 2?") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.reasoning_summary_text.delta", "response.output_text.delta"} <= kinds
    assert [item.type for item in final.output] == ["reasoning", "message"]


def test_structured_outputs(client):
    asked = {"model": "default", "input": "Weather?", "text_format": Report}
    assert isinstance(client.responses.parse(**asked).output_parsed, Report)
    with client.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Report)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "sent again"])
def test_a_tool_loop(client, stored):
    asked = client.responses.create(model="default", input=[PARIS], tools=[WEATHER], store=stored)
    [call] = [item for item in asked.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Paris"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Cloudy, 12°C"}
    before = (
        {"previous_response_id": asked.id, "input": [result]}
        if stored
        else {"input": [PARIS, *asked.output, result]}
    )
    answer = client.responses.create(model="default", tools=[WEATHER], store=stored, **before)
    assert "12" in answer.output_text


def test_streamed_tool_calls(client):
    with client.responses.stream(model="default", input=[PARIS], tools=[WEATHER]) as stream:
        kinds = {event.type for event in stream}
        [call] = [item for item in stream.get_final_response().output if item.type == "function_call"]
    assert "response.function_call_arguments.delta" in kinds
    assert json.loads(call.arguments) == {"city": "Paris"}


def test_what_is_stored(client):
    answer = client.responses.create(model="default", input="Hello!", metadata={"a": "b"})
    found = client.responses.retrieve(answer.id)
    assert (found.output_text, found.metadata) == (answer.output_text, {"a": "b"})
    [item] = client.responses.input_items.list(answer.id)
    assert item.content[0].text == "Hello!"
    second = client.responses.create(model="default", input="Thank you!", previous_response_id=answer.id)
    assert second.previous_response_id == answer.id
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_background(client):
    answer = client.responses.create(model="default", input="Tell me a story", background=True)
    assert answer.status in ("queued", "in_progress")
    deadline = time.monotonic() + 120
    while answer.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
        answer = client.responses.retrieve(answer.id)
    assert answer.status == "completed"
    assert answer.output_text
    begun = client.responses.create(model="default", input="Tell me a story", background=True, stream=True)
    first = [next(begun) for _ in range(4)]
    begun.close()
    ident = first[0].response.id
    rest = list(client.responses.retrieve(ident, stream=True, starting_after=3))
    assert [event.sequence_number for event in rest] == list(range(4, 4 + len(rest)))
    assert rest[-1].type == "response.completed"


@pytest.mark.skipif(not hasattr(openai.OpenAI, "conversations"), reason="this version has none")
def test_conversations(client):
    conversation = client.conversations.create(metadata={"a": "b"})
    for text in ("Hello!", "Thank you!"):
        client.responses.create(model="default", input=text, conversation=conversation.id)
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.role for item in items] == ["user", "assistant", "user", "assistant"]
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_async():
    async def run():
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
            whole = await client.responses.create(model="default", input="Hello!")
            async with client.responses.stream(model="default", input="Hello!") as stream:
                text = "".join(
                    [event.delta async for event in stream if event.type == "response.output_text.delta"]
                )
            return whole.output_text, text

    whole, text = asyncio.run(run())
    assert whole == text


def test_errors(client):
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="default", input="Hello!", previous_response_id="resp_unknown")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.responses.create(model="default", input="Hello!", temperature=7)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.responses.create(model="default", input="sea " * 100_000)
    assert long.value.code == "context_length_exceeded"
