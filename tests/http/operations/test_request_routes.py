"""Requests in flight, listed and cancelled by an operator of a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.guard.test_revoked_streams import new_key
from greenroom.tests.http.operations.test_admin_models import CHAT, endless_chat
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

REQUESTS = "/admin/requests"


async def in_flight(served: Served) -> dict[str, dict[str, Any]]:
    listed = (await fetch(served.server, "GET", REQUESTS)).json()["requests"]
    return {request["id"]: request for request in listed}


async def test_the_line_of_a_request_says_why_it_was_refused_and_whose_it_was(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), db=":memory:", shutdown_timeout=60.0)
    chat = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}]}
    with capture_logs() as lines:
        async with serving(settings) as served:
            # While it is loaded, the guest could earn another request.
            loaded = await fetch(served.server, "POST", "/admin/models/load", {"model": "qwen3"})
            assert loaded.status == 200
            boss = await new_key(served, "", name="boss", admin=True)
            guest = await new_key(served, boss, name="guest", requests_per_minute=3)
            wanted: tuple[tuple[Any, str, tuple[Any, ...]], ...] = (
                ({}, "", (401, "invalid_api_key", None, None)),
                ({**chat, "model": "gone"}, guest, (404, "model_not_found", "gone", "guest")),
                ({**chat, "temperature": "warm"}, guest, (400, "invalid_value", "qwen3", "guest")),
                ({**chat, "max_tokens": 1}, guest, (200, None, "qwen3", "guest")),
                (chat, guest, (429, "rate_limit_exceeded", None, "guest")),
            )
            for body, key, (status, *_) in wanted:
                assert (await fetch(served.server, "POST", CHAT, body, x_api_key=key)).status == status
            assert (await fetch(served.server, "GET", REQUESTS, x_api_key=guest)).status == 403
            async with connected(served.server) as client:
                long = json.dumps({**chat, "stream": True, "max_tokens": 20_000, "ignore_eos": True}).encode()
                await client.request("POST", CHAT, long, x_api_key=boss)
                await client.read_until(b"data: ")
            assert (await fetch(served.server, "DELETE", "/admin/keys/guest", x_api_key=boss)).status == 200

            async def is_told() -> bool:
                return any(line["event"] == "client disconnected" for line in lines)

            await eventually(is_told)
    names = ("status", "problem", "model", "key")
    told = [tuple(map(line.get, names)) for line in lines if line.get("path") == CHAT]
    expected = [*(want for _, _, want in wanted), (200, None, "qwen3", "boss")]
    assert sorted(told, key=str) == sorted(expected, key=str)
    [forbidden] = [line for line in lines if line.get("path") == REQUESTS]
    assert (forbidden["problem"], forbidden["key"]) == ("admin_key_required", "guest")
    assert ["127.0.0.1" in str(line.get("address")) for line in lines if line.get("status") == 401] == [True]
    events = ("key made", "key revoked", "requests need a key")
    doors = [(line["event"], line.get("key")) for line in lines if line["event"] in events]
    assert doors == [
        ("key made", "boss"),
        ("requests need a key", None),
        ("key made", "guest"),
        ("key revoked", "guest"),
    ]


@pytest.mark.parametrize("logs", [True, False])
async def test_prompts_and_answers_are_logged_only_if_asked_for(tiny_model: TinyModel, logs: bool) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), log_content=logs, shutdown_timeout=60.0)
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "xyzzy"}], "max_tokens": 3}
    with capture_logs() as lines:
        async with serving(settings) as served:
            answer = await fetch(served.server, "POST", CHAT, body)
    told = {line["event"]: line for line in lines if line["event"] in ("prompt", "answer")}
    assert ("xyzzy" in str(lines)) is logs
    assert told.keys() == ({"prompt", "answer"} if logs else set())
    if logs:
        assert "<|im_start|>user\nxyzzy" in told["prompt"]["text"]
        assert told["answer"]["text"].startswith(answer.json()["choices"][0]["message"]["content"])
        assert {line["log_level"] for line in told.values()} == {"debug"}


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
                states = sorted(each["state"] for each in (await in_flight(served)).values())
                return states == ["running", "waiting"]

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
        with capture_logs() as lines:
            assert (await fetch(served.server, "POST", f"{REQUESTS}/{running}/cancel")).status == 200
            assert b'"code":"request_cancelled"' in await client.read_until(b"data: [DONE]\n\n")

            async def is_told() -> bool:
                return any(line["event"] == "request failed" for line in lines)

            await eventually(is_told)
        ends = ("request failed", "request finished")
        [end] = [line for line in lines if line["event"] in ends and line["request_id"] == running]
        assert (end["problem"], end["model"]) == ("request_cancelled", "qwen3")
        assert end["generated_tokens"] > 0

        async def none_is_left() -> bool:
            return await in_flight(served) == {}

        await eventually(none_is_left)
        # The slot is free again.
        assert (await fetch(served.server, "POST", f"{REQUESTS}/{running}/cancel")).status == 404
        body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        assert (await fetch(served.server, "POST", CHAT, body)).status == 200


@pytest.mark.parametrize("ident", ["req_0", "..", "%20", "a" * 3_000, "%00", "%ff"])
async def test_an_unknown_request_is_a_404(server_without_model: Served, ident: str) -> None:
    answer = await fetch(server_without_model.server, "POST", f"{REQUESTS}/{ident}/cancel")
    assert answer.status == 404
