"""The whole server on a real socket, with the official OpenAI client and real tiny models."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
import trio
from quart_trio import QuartTrio

from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import generating, state
from greenroom.tests.support.clients.openai_clients import CHAT, ask, body, stream_of, streamed_text
from greenroom.tests.support.servers.http_servers import connected, serving


async def test_a_streamed_answer_is_the_whole_answer(settings: Settings) -> None:
    async with serving(settings) as served:
        whole = await ask(served, lambda client: client.chat.completions.create(**body()))
        assert whole.model == "qwen3"
        assert whole.usage
        assert whole.usage.completion_tokens == 12
        assert whole.choices[0].finish_reason == "length"
        assert whole._request_id
        assert whole._request_id.startswith("req_")
        chunks = await stream_of(served, stream_options={"include_usage": True})
        assert streamed_text(chunks) == whole.choices[0].message.content
        assert chunks[0].choices[0].delta.role == "assistant"
        assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
        assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + [
            "length"
        ]
        assert chunks[-1].choices == []
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens_details == whole.usage.completion_tokens_details
        assert usage.prompt_tokens == whole.usage.prompt_tokens
        assert usage.total_tokens == whole.usage.total_tokens
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens in range(usage.prompt_tokens)
        assert all(chunk.usage is None for chunk in await stream_of(served))


async def test_the_asynchronous_client_streams_too(settings: Settings) -> None:
    async with serving(settings) as served:

        async def several() -> list[str]:
            async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any") as client:

                async def one() -> str:
                    chunks = await client.chat.completions.create(**body(stream=True))
                    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

                return list(await asyncio.gather(*(one() for _ in range(6))))

        with trio.fail_after(300):
            texts = await trio.to_thread.run_sync(asyncio.run, several())
        assert len(set(texts)) == 1
        assert texts[0] == streamed_text(await stream_of(served))


async def test_stop_strings_end_an_answer_without_showing(settings: Settings) -> None:
    async with serving(settings) as served:
        whole = streamed_text(await stream_of(served, max_tokens=None, max_completion_tokens=24))
        stop = whole[len(whole) // 2 :][:3]
        chunks = await stream_of(served, max_tokens=24, stop=[stop])
        assert streamed_text(chunks) == whole[: whole.index(stop)]
        assert chunks[-1].choices[0].finish_reason == "stop"


async def test_content_and_roles_come_in_several_forms(settings: Settings) -> None:
    async with serving(settings) as served:
        plain = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two"}]
        parts = [
            {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        ]
        texts = [streamed_text(await stream_of(served, messages=messages)) for messages in (plain, parts)]
        assert texts[0] == texts[1]
        assert texts[0] != streamed_text(await stream_of(served))


async def test_default_means_the_first_model(settings: Settings) -> None:
    async with serving(settings) as served:
        answer = await ask(served, lambda client: client.chat.completions.create(**body(model="default")))
        assert answer.model == "qwen3"
        assert answer.choices[0].message.content == streamed_text(await stream_of(served))


@pytest.mark.parametrize("stream", [True, False])
async def test_hanging_up_stops_the_model(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:
        async with connected(served.server) as client:
            await client.request("POST", CHAT, json.dumps(body(stream=stream, max_tokens=None)).encode())
            if stream:
                await client.read_until(b'"content":"')
            await generating(served.system.pool, "qwen3", 1)
        await generating(served.system.pool, "qwen3", 0)
        assert await state(served.system.pool, "qwen3") is ModelState.READY


async def test_an_answer_may_take_longer_than_quarts_time_limit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = {**QuartTrio.default_config, "RESPONSE_TIMEOUT": 0.01}
    monkeypatch.setattr(QuartTrio, "default_config", limited)
    async with serving(settings) as served:
        chunks = await stream_of(served, max_tokens=200)
        assert chunks[-1].choices[0].finish_reason == "length"
