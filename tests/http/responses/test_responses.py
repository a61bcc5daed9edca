"""Responses on a real socket, with the official OpenAI client and real tiny models."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import openai
import pytest
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared


def body(**changed: Any) -> dict[str, Any]:
    return {"model": "qwen3", "input": "one two three", "max_output_tokens": 12, "temperature": 0, **changed}


async def test_a_streamed_response_is_the_whole_response(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    whole = await ask(served, lambda client: client.responses.create(**body()))
    assert (whole.object, whole.status, whole.model) == ("response", "incomplete", "qwen3")
    assert whole.usage
    assert whole.usage.output_tokens == 12
    assert whole.output_text

    def streamed(client: openai.OpenAI) -> Any:
        with client.responses.stream(**body(store=False)) as stream:
            return [event.to_dict() for event in stream]

    events = await ask(served, streamed)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]
    assert last["type"] == "response.incomplete"
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert last["response"]["usage"]["output_tokens"] == 12
    assert last["response"]["store"] is False


async def test_what_the_operator_has_set_is_echoed_where_a_request_says_nothing(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, temperature=0.0)) as served:
        unset: dict[str, Any] = {"model": "qwen3", "input": "one two", "max_output_tokens": 2}
        plain = await ask(served, lambda client: client.responses.create(**unset))
        assert (plain.temperature, plain.top_p) == (0.0, 1.0)
        asked = await ask(served, lambda client: client.responses.create(**unset, temperature=0.5, top_p=0.9))
        assert (asked.temperature, asked.top_p) == (0.5, 0.9)


async def test_the_asynchronous_client_streams_too(settings: Settings, shared: Shared) -> None:
    served = shared(settings)

    async def several() -> list[str]:
        async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any") as client:

            async def one() -> str:
                async with client.responses.stream(**body()) as stream:
                    events: list[Any] = [event async for event in stream]
                return "".join(event.delta for event in events if event.type.endswith("text.delta"))

            return list(await asyncio.gather(*(one() for _ in range(6))))

    with trio.fail_after(300):
        texts = await trio.to_thread.run_sync(asyncio.run, several())
    assert len(set(texts)) == 1


SAME: list[dict[str, Any]] = [
    {"input": [{"role": "user", "content": "one two three"}]},
    {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "one two three"}],
            }
        ]
    },
    {"input": None, "messages": [{"role": "user", "content": "one two three"}]},
]
"""Equivalent forms of the same input."""


async def test_counted_tokens_are_those_of_the_usage(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    plain = await ask(served, lambda client: client.responses.create(**body()))
    assert plain.usage
    counted = await ask(served, lambda client: client.responses.input_tokens.count(input="one two three"))
    assert counted.input_tokens == plain.usage.input_tokens
    for same in SAME:
        other = (await fetch(served.server, "POST", "/v1/responses", body(**same))).json()
        assert other["usage"]["input_tokens"] == plain.usage.input_tokens


async def test_more_than_the_context_holds_may_be_asked_for(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, max_context=64)) as served:
        answer = await fetch(served.server, "POST", "/v1/responses", body(max_output_tokens=32_000))
    assert answer.json()["status"] in ("completed", "incomplete")
    assert answer.json()["max_output_tokens"] == 32_000


async def test_a_prompt_that_does_not_fit_is_refused_by_name(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    with pytest.raises(openai.BadRequestError, match="maximum context length") as caught:
        await ask(served, lambda client: client.responses.create(**body(input="one two " * 20_000)))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
