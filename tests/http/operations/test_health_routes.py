"""Probes of a server that has models: which of them says that one hangs."""

from __future__ import annotations

import json

from greenroom.schemas.settings import Settings
from greenroom.tests.support.actor_systems import Faults, FaultyEngines, eventually
from greenroom.tests.support.http_servers import connected, fetch, serving
from greenroom.tests.support.tiny_models import TinyModel

CHAT = "/v1/chat/completions"


async def test_a_server_with_a_hung_model_is_not_ready_until_it_answers_again(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=60.0)
    faults = Faults()
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}]}
    endless = json.dumps({**body, "stream": True, "max_tokens": 20_000}).encode()
    # On a busy machine a step may take a second.
    async with serving(settings, engines=FaultyEngines(settings, faults), hang_timeout=3.0) as served:
        server = served.server
        try:
            async with connected(server) as client:
                await client.request("POST", CHAT, endless)
                head = (await client.read_until(b"\r\n\r\n")).decode().lower()
                assert (await fetch(server, "GET", "/readyz")).status == 200
                faults.hang.add(head.split("x-request-id: ")[1].split()[0])
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
