"""Streams of keys that are revoked: they end with an error in the protocol's form, and stop computing."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from greenroom.actors.core.ref import Ref
from greenroom.http.guard.keys import KeyRing, KeyWatch
from greenroom.schemas.settings.caller import Caller, KeyRecord, digest_of
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.watched_engines import until
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

MESSAGES = [{"role": "user", "content": "Hello"}]
LONG = {"max_tokens": 200_000, "ignore_eos": True, "stream": True, "model": "qwen3", "temperature": 0}
"""More tokens than are generated before the revocation; greedy answers of tiny models never end earlier."""
STREAMS: dict[str, tuple[Any, bytes, bytes]] = {
    "/v1/chat/completions": ({**LONG, "messages": MESSAGES}, b"chat.completion.chunk", b'"error"'),
    "/v1/completions": ({**LONG, "prompt": "a"}, b"text_completion", b'"error"'),
    "/v1/messages": ({**LONG, "messages": MESSAGES}, b"content_block_delta", b"event: error"),
    "/v1/responses": (
        {"input": "a", "stream": True, "model": "qwen3", "max_output_tokens": 200_000, "temperature": 0},
        b"output_text.delta",
        b"response.failed",
    ),
    "/api/chat": (
        {"model": "qwen3", "messages": MESSAGES, "options": {"num_predict": 200_000, "temperature": 0}},
        b'"content"',
        b'"error"',
    ),
}


@pytest.fixture
async def served(tiny_model: TinyModel, tmp_path: Path) -> AsyncIterator[Served]:
    settings = Settings(models=(str(tiny_model("qwen3")),), db=str(tmp_path / "db"), shutdown_timeout=60.0)
    async with serving(settings) as served:
        yield served


async def new_key(served: Served, boss: str, **body: Any) -> str:
    made = await fetch(served.server, "POST", "/admin/keys", body, x_api_key=boss)
    assert made.status == 200, made.body
    return str(made.json()["secret"])


def answered(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] == "request answered" and line["path"] in STREAMS]


async def test_streams_of_a_revoked_key_end_with_an_error_in_every_protocol(served: Served) -> None:
    boss = await new_key(served, "", name="boss", admin=True)
    guest = await new_key(served, boss, name="guest")

    async def follow(path: str) -> None:
        body, first, error = STREAMS[path]
        async with connected(served.server) as client:
            await client.request("POST", path, json.dumps(body).encode(), x_api_key=guest)
            await client.read_until(first)
            begun.append(path)
            if len(begun) == len(STREAMS):
                revoked = await fetch(served.server, "DELETE", "/admin/keys/guest", x_api_key=boss)
                assert revoked.status == 200
            await client.read_until(error)
            ended.add(path)

    begun, ended = list[str](), set[str]()
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            for path in STREAMS:
                nursery.start_soon(follow, path)
        assert ended == STREAMS.keys()
        requests: Any = [True]
        while requests:
            answer = await fetch(served.server, "GET", "/admin/requests", x_api_key=boss)
            requests = answer.json()["requests"]
        await until(lambda: len(answered(lines)) == len(STREAMS))
    assert [line["key"] for line in lines if line["event"] == "key revoked"] == ["guest"]
    assert sorted(line["path"] for line in answered(lines)) == sorted(STREAMS)
    assert {(line["problem"], line["model"], line["key"]) for line in answered(lines)} == {
        ("invalid_api_key", "qwen3", "guest")
    }


async def test_an_operators_stream_of_events_ends_with_its_key(served: Served) -> None:
    boss = await new_key(served, "", name="boss", admin=True)
    other = await new_key(served, boss, name="other", admin=True)
    async with connected(served.server) as client:
        await client.request("GET", "/admin/events", x_api_key=other)
        await client.read_until(b"hello")
        assert (await fetch(served.server, "DELETE", "/admin/keys/other", x_api_key=boss)).status == 200
        await client.read_until(b"event: error")


async def test_a_key_expires_within_a_second_while_the_store_is_silent(served: Served) -> None:
    silent, unread = trio.open_memory_channel[Any](100)
    ring, ended = KeyRing(), trio.Event()
    refs = attrs.evolve(served.system.refs, store=Ref(silent))
    caller = Caller("key_1", admin=False, expires=time.time() + 0.2)
    ring.replace([KeyRecord("guest", digest_of("guest"), caller, created=0.0)], time.time())
    ring.attend(caller, ended.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(KeyWatch(ring, refs, None).run)
        with trio.fail_after(300):
            await unread.receive()  # the question that nobody answers
            await ended.wait()
        nursery.cancel_scope.cancel()
