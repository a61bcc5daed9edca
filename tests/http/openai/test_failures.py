"""Refusals and failures over a real socket, before and after an answer begins, with OpenAI's client."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import openai
import pytest
import trio

import greenroom.http.answering.event_stream
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.clients.openai_clients import CHAT, USER, ask, body, stream_of, streamed_text
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_keep_their_status(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:

        async def create(**fields: Any) -> None:
            request = body(stream=stream, **fields)
            await ask(served, lambda client: client.chat.completions.create(**request))

        with pytest.raises(openai.NotFoundError, match="qwen3") as missing:
            await create(model="qwen")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="maximum context length") as overflow:
            await create(messages=[{"role": "user", "content": "word " * 100_000}])
        assert overflow.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as unmatched:
            await create(messages=[USER, {"role": "tool", "tool_call_id": "call_x", "content": "1"}])
        assert (unmatched.value.param or "").startswith("messages[1]")
        assert unmatched.value.response.headers["content-type"] == "application/problem+json"
        assert unmatched.value.request_id


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
        ({"temperature": 9}, "temperature"),
        ({"n": 0}, "n"),
        ({"seed": "one"}, "seed"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
    ],
)
async def test_bad_requests_are_400_and_name_the_field(
    settings: Settings, fields: dict[str, Any], param: str
) -> None:
    async with serving(settings) as served:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(served, lambda client: client.chat.completions.create(**body(**fields)))
        assert refused.value.param == param
        assert isinstance(refused.value.body, dict)
        assert set(refused.value.body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_cannot_be_loaded_is_a_503_that_is_not_retried(
    settings: Settings, stream: bool
) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        request = body(stream=stream)
        with pytest.raises(openai.InternalServerError, match="could not be loaded") as failed:
            await ask(served, lambda client: client.chat.completions.create(**request), retries=2)
        assert (failed.value.status_code, failed.value.code) == (503, "load_failed")
        assert faults.loads == ["qwen3"]


@asynccontextmanager
async def slow_to_load(settings: Settings, faults: Faults) -> AsyncIterator[Served]:
    """Run a server whose model loads when the test allows it, with a status timeout of 0.2 s."""
    faults.gate = threading.Event()
    async with serving(settings, engines=FaultyEngines(settings, faults), status_timeout=0.2) as served:
        try:
            yield served
        finally:
            faults.gate.set()


async def test_a_stream_opens_while_its_model_loads_and_is_kept_alive(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greenroom.http.answering.event_stream, "HEARTBEAT", 0.05)
    faults = Faults()
    async with slow_to_load(settings, faults) as served, connected(served.server) as client:
        await client.request("POST", CHAT, json.dumps(body(stream=True)).encode())
        assert b" 200 " in await client.read_until(b"\r\n\r\n")
        for _ in range(4):
            assert b'"content":""' in await client.read_until(b"\n\n")
        assert faults.gate is not None
        faults.gate.set()
        received = await client.read_until(b"data: [DONE]\n\n")
        assert received.count(b'"finish_reason":"length"') == 1


async def test_what_fails_after_the_headers_is_an_event(settings: Settings) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with slow_to_load(settings, faults) as served:
        opened: list[Any] = []

        def read(client: openai.OpenAI) -> None:
            stream = client.chat.completions.create(**body(stream=True))
            assert faults.gate is not None
            faults.gate.set()
            opened.extend(stream)

        with pytest.raises(openai.APIError, match="could not be loaded") as failed:
            await ask(served, read)
        assert not isinstance(failed.value, openai.APIStatusError)
        assert failed.value.code == "load_failed"


@pytest.mark.deep
async def test_a_crash_ends_its_own_streams_only_and_the_next_request_works(settings: Settings) -> None:
    faults = Faults(crash={"Crash"})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        await stream_of(served)
        bystander: list[Any] = []

        async def stand_by() -> None:
            bystander.extend(await stream_of(served, model="llama", max_tokens=200))

        async with connected(served.server) as client, trio.open_nursery() as nursery:
            nursery.start_soon(stand_by)
            asked = body(stream=True, messages=[{"role": "user", "content": "Crash"}])
            await client.request("POST", CHAT, json.dumps(asked).encode())
            await client.read_until(b"\r\n\r\n")
            received = await client.read_until(b"data: [DONE]\n\n")
            assert b'"code":"model_crashed"' in received
            assert b'"finish_reason":"' not in received
        assert bystander[-1].choices[0].finish_reason == "length"
        assert streamed_text(await stream_of(served))


async def test_a_draining_server_is_not_ready_and_refuses(settings: Settings) -> None:
    async with serving(settings) as served:
        assert (await fetch(served.server, "GET", "/readyz")).status == 200
        await served.system.drain()
        answer = await fetch(served.server, "GET", "/readyz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        refused = await fetch(served.server, "POST", CHAT, body())
        assert (refused.status, refused.json()["error"]["code"]) == (503, "draining")
        assert "retry-after" in refused.headers
        assert (await fetch(served.server, "GET", "/livez")).status == 200


async def test_a_full_queue_is_refused_with_a_time_to_retry(settings: Settings) -> None:
    settings = attrs.evolve(settings, max_batch=1, max_queue=1)
    faults = Faults()
    async with slow_to_load(settings, faults) as served, trio.open_nursery() as nursery:
        refused = []

        async def one() -> None:
            answer = await fetch(served.server, "POST", CHAT, body(max_tokens=2))
            if answer.status != 200:
                refused.append(answer)
                assert faults.gate is not None
                faults.gate.set()

        for _ in range(4):
            nursery.start_soon(one)
    assert refused
    assert {answer.status for answer in refused} == {503}
    assert refused[0].json()["error"]["code"] == "queue_full"
    assert refused[0].headers["retry-after"] == "2"


async def test_a_failure_of_one_of_several_prompts_is_the_whole_requests(settings: Settings) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        request = {"model": "qwen3", "prompt": ["one", "two"]}
        whole = await fetch(served.server, "POST", "/v1/completions", request)
        assert (whole.status, whole.json()["error"]["code"]) == (503, "load_failed")
        faults.gate = threading.Event()  # until both prompts are admitted, a failure is the status
        async with connected(served.server) as client:
            await client.request("POST", "/v1/completions", json.dumps({**request, "stream": True}).encode())
            assert b" 200 " in await client.read_until(b"\r\n\r\n")
            faults.gate.set()
            assert b'"code":"load_failed"' in await client.read_until(b"data: [DONE]\n\n")
