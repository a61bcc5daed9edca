"""The whole server on a real socket, with Anthropic's official client and a real tiny model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import pytest
import trio

from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import generating, state
from greenroom.tests.support.clients.anthropic_clients import COUNT, MESSAGES, USER, arguments, ask, body
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared


def streamed(client: Any, **fields: Any) -> tuple[str, Any]:
    """Return the text of a stream, and the message that the client's helper builds from it."""
    with client.messages.stream(**arguments(**fields)) as stream:
        return "".join(stream.text_stream), stream.get_final_message()


async def test_a_streamed_message_is_the_whole_message(settings: Settings) -> None:
    async with serving(settings) as served:
        whole = await ask(served, lambda client: client.messages.create(**arguments()))
        text, message = await ask(served, streamed)
        counted = await ask(
            served, lambda client: client.messages.count_tokens(model="qwen3", messages=[USER])
        )
    assert (whole.type, whole.role, whole.model, whole.stop_reason) == (
        "message",
        "assistant",
        "qwen3",
        "max_tokens",
    )
    assert whole._request_id.startswith("req_")
    assert whole.usage.output_tokens == 12
    assert [block.type for block in message.content] == [block.type for block in whole.content] == ["text"]
    assert text == message.content[0].text == whole.content[0].text
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 12)
    # The second prompt was cached, but its length stays the same, and equals the token count.
    assert whole.usage.cache_read_input_tokens == 0
    assert message.usage.cache_read_input_tokens > 0
    for usage in (whole.usage, message.usage):
        total = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        assert total == counted.input_tokens


async def test_the_asynchronous_client_streams_and_stops_at_a_sequence(
    settings: Settings, shared: Shared
) -> None:
    served = shared(settings)

    async def several() -> list[Any]:
        async with anthropic.AsyncAnthropic(base_url=served.server.address, auth_token="any") as client:

            async def one(**fields: Any) -> Any:
                async with client.messages.stream(**arguments(max_tokens=24, **fields)) as stream:
                    return await stream.get_final_message()

            whole = await client.messages.create(**arguments(max_tokens=24))
            text = whole.content[0].text
            stop = text[len(text) // 2 :][:3]
            return [text, stop, *await asyncio.gather(*(one(stop_sequences=[stop]) for _ in range(4)))]

    with trio.fail_after(300):
        text, stop, *messages = await trio.to_thread.run_sync(asyncio.run, several())
    assert len(messages) == 4
    for message in messages:
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
        assert message.content[0].text == text[: text.index(stop)]


async def test_every_version_and_either_way_of_sending_the_key_is_served(
    settings: Settings, shared: Shared
) -> None:
    served = shared(settings)
    answers = [
        await fetch(served.server, "POST", f"{MESSAGES}?beta=true", body(max_tokens=2), **headers)
        for headers in (
            {"anthropic_version": "2026-10-21", "authorization": "Bearer k"},
            {"anthropic_version": "2023-06-01", "x_api_key": "k", "anthropic_beta": "a,b"},
            {"x_api_key": "k", "authorization": "Bearer k"},
            {},
        )
    ]
    assert [answer.status for answer in answers] == [200] * 4
    assert len({json.dumps(answer.json()["content"]) for answer in answers}) == 1
    assert all(answer.headers["request-id"].startswith("req_") for answer in answers)


async def test_an_answer_that_fills_the_context_says_so(settings: Settings) -> None:
    async with serving(settings) as served:
        prompt = (await fetch(served.server, "POST", COUNT, body())).json()["input_tokens"]
        room = Settings(models=settings.models, max_context=prompt + 8, shutdown_timeout=60.0)
    async with serving(room) as served:
        message = await ask(served, lambda client: client.messages.create(**arguments(max_tokens=4_000)))
        assert (message.stop_reason, message.usage.output_tokens) == ("model_context_window_exceeded", 8)
        long = [{"role": "user", "content": "word " * 200}]
        with pytest.raises(anthropic.BadRequestError) as refused:
            await ask(served, lambda client: client.messages.create(**arguments(messages=long)))
        assert refused.value.error_code == "context_length_exceeded"
        assert f"tokens > {prompt + 8} maximum" in str(refused.value)


@pytest.mark.parametrize("stream", [True, False])
async def test_hanging_up_stops_the_model(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:
        async with connected(served.server) as client:
            request = body(stream=stream, max_tokens=20_000)
            await client.request("POST", MESSAGES, json.dumps(request).encode())
            if stream:
                await client.read_until(b"text_delta")
            await generating(served.system.pool, "qwen3", 1)
        await generating(served.system.pool, "qwen3", 0)
        assert await state(served.system.pool, "qwen3") is ModelState.READY


async def test_what_clients_ask_beside_messages(server_without_model: Served) -> None:
    server = server_without_model.server
    models = await ask(server_without_model, lambda client: list(client.models.list()))
    assert [model.id for model in models] == ["greenroom-demo"]
    one = await ask(server_without_model, lambda client: client.models.retrieve("greenroom-demo"))
    assert (one.type, one.display_name) == ("model", "greenroom-demo")
    assert (await fetch(server, "GET", "/v1/models")).json()["object"] == "list"
    for path in ("/", "/api/hello"):
        async with connected(server) as client:
            await client.request("HEAD", path, connection="close")
            assert (await client.read_to_end()).startswith(b"HTTP/1.1 200")
    for method, path in (
        ("POST", ""),
        ("GET", ""),
        ("GET", "/b"),
        ("GET", "/b/results"),
        ("POST", "/b/cancel"),
    ):
        answer = await fetch(server, method, f"/v1/messages/batches{path}", content_type="application/json")
        assert (answer.status, answer.json()["type"]) == (501, "error")
        assert answer.headers["x-should-retry"] == "false"
