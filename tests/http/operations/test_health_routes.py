"""Health probes of a server with models; one of them reports a hung model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    HANG_TIMEOUT,
    eventually,
    fall_silent,
)
from greenroom.tests.support.actors.stored_records import unusable_default_database
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawResponse, connected, fetch, serving

CHAT = "/v1/chat/completions"


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that runs in real time and can jump."""
    return MockClock(rate=1.0)


async def test_a_server_with_a_hung_model_is_not_ready_until_it_answers_again(
    tiny_model: TinyModel, clock: MockClock
) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=60.0)
    faults = Faults()
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}]}
    endless = json.dumps({**body, "stream": True, "max_tokens": 20_000}).encode()
    engines = FaultyEngines(settings, faults)
    async with serving(settings, engines=engines, hang_timeout=HANG_TIMEOUT) as served:
        server = served.server
        try:
            async with connected(server, math.inf) as client, trio.open_nursery() as nursery:
                await client.request("POST", CHAT, endless)
                head = (await client.read_until(b"\r\n\r\n")).decode().lower()
                assert (await fetch(server, "GET", "/readyz")).status == 200
                faults.hang.add(head.split("x-request-id: ")[1].split()[0])
                nursery.start_soon(fall_silent, clock, faults, served.system)
                assert b'"code":"model_hung"' in await client.read_until(b"data: [DONE]\n\n")
            refused = await fetch(server, "GET", "/readyz")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert refused.json()["error"]["code"] == "not_ready"
            assert "qwen3" in refused.json()["detail"]
            assert "llama" not in refused.json()["detail"]
            assert (await fetch(server, "GET", "/livez")).status == 200
        finally:
            faults.release.set()

        async def ready() -> bool:
            return (await fetch(server, "GET", "/readyz")).status == 200

        await eventually(ready)
        assert (await fetch(server, "POST", CHAT, {**body, "max_tokens": 2})).status == 200


async def test_a_server_that_lost_a_thread_over_a_prompt_answers_and_says_so(
    tiny_model: TinyModel, clock: MockClock
) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    faults = Faults(hang_prompt={"bad"})
    engines = FaultyEngines(settings, faults)

    def asking(text: str) -> dict[str, object]:
        return {"model": "qwen3", "messages": [{"role": "user", "content": text}], "max_tokens": 2}

    async with serving(settings, engines=engines, hang_timeout=HANG_TIMEOUT) as served:
        try:
            answers: list[RawResponse] = []

            async def ask(text: str) -> None:
                async with connected(served.server, math.inf) as client:
                    await client.request("POST", CHAT, json.dumps(asking(text)).encode())
                    answers.append(await client.receive_response())

            await ask("warm")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "bad")
                await fall_silent(clock, faults, served.system)
            await ask("next")
            assert [answer.status for answer in answers] == [200, 500, 200]
            assert answers[1].json()["error"]["code"] == "prompt_hung"
            told = await fetch(served.server, "GET", "/readyz")
            assert told.status == 200
            assert told.json() == {"status": "degraded", "hung_threads": {"qwen3": 1}}
        finally:
            faults.release.set()

        async def whole() -> bool:
            return bool((await fetch(served.server, "GET", "/readyz")).json() == {"status": "ok"})

        await eventually(whole)


async def test_a_server_that_can_store_nothing_is_ready_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = unusable_default_database(monkeypatch, tmp_path)
    async with serving(Settings(db=database, shutdown_timeout=20.0)) as served:
        refused = await fetch(served.server, "POST", "/v1/conversations", {})
        assert (refused.status, refused.json()["error"]["code"]) == (503, "store_unavailable")
        told = await fetch(served.server, "GET", "/readyz")
        assert (told.status, told.json()["status"]) == (200, "degraded")
        assert "it is no file" in told.json()["store"]
