"""Requests in flight, listed and cancelled by an operator of a real server."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.operations.admin.test_model_routes import CHAT, endless_chat
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

REQUESTS = "/admin/requests"


async def in_flight(served: Served) -> dict[str, dict[str, Any]]:
    listed = (await fetch(served.server, "GET", REQUESTS)).json()["requests"]
    return {request["id"]: request for request in listed}


async def test_a_running_and_a_waiting_request_are_listed_and_cancelled(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), max_batch=1, shutdown_timeout=60.0)
    async with serving(settings) as served, endless_chat(served, "qwen3") as (client, running):
        waiting: list[Any] = []

        async def wait() -> None:
            body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}], "priority": 2}
            waiting.append(await fetch(served.server, "POST", CHAT, body))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)

            async def both() -> bool:
                return len(await in_flight(served)) == 2

            await eventually(both)
            found = await in_flight(served)
            assert found[running]["state"] == "running"

            async def explained() -> bool:
                rows = (await in_flight(served))[running]["rows"]
                return any(row["explanation"] for row in rows)

            await eventually(explained)
            [row] = (await in_flight(served))[running]["rows"]
            assert row["explanation"]["prefix"]["reason"] == "first"
            assert row["explanation"]["cached_tokens"]["memory"] == row["cached_tokens"] == 0
            [behind] = found.keys() - {running}
            assert (found[behind]["state"], found[behind]["priority"]) == ("waiting", 2)
            cancelled = await fetch(served.server, "POST", f"{REQUESTS}/{behind}/cancel")
            assert cancelled.json() == {"id": behind, "cancelled": 1}
        refused = waiting[0]
        assert (refused.status, refused.json()["error"]["code"]) == (503, "request_cancelled")
        assert refused.headers["x-should-retry"] == "false"
        assert (await fetch(served.server, "POST", f"{REQUESTS}/{running}/cancel")).status == 200
        assert b'"code":"request_cancelled"' in await client.read_until(b"data: [DONE]\n\n")

        async def none() -> bool:
            return await in_flight(served) == {}

        await eventually(none)
        # The slot is free again.
        assert (await fetch(served.server, "POST", f"{REQUESTS}/{running}/cancel")).status == 404
        body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        assert (await fetch(served.server, "POST", CHAT, body)).status == 200


@pytest.mark.parametrize("ident", ["req_0", "..", "%20", "a" * 3_000, "%00", "%ff"])
async def test_an_unknown_request_is_a_404(server_without_model: Served, ident: str) -> None:
    answer = await fetch(server_without_model.server, "POST", f"{REQUESTS}/{ident}/cancel")
    assert answer.status == 404
