"""Slightly invalid requests to every endpoint: each is answered without a server error."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pytest
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving
from greenroom.tests.support.spoiled.spoiled_bodies import BODIES, Json
from greenroom.tests.support.spoiled.spoiled_requests import SpoiledRequest, spoiled_request

AT_ONCE = 4
ANSWERED_WITHIN = 120.0
"""Time limit of a whole answer on a busy machine in seconds; no answer exceeds a full context."""
FAULTS = (b"internal_error", b"model_crashed", b"model_hung", b"Traceback")
REFUSALS = {400, 404, 405, 409}
"""Expected statuses. 404: an unknown model, response or conversation. 405: an empty id gives another path.
409: two concurrent turns in one conversation.
"""


@attrs.define
class Fuzzer:
    """A sender of spoiled requests, one after another on each connection."""

    served: Served
    stored: Mapping[str, str]
    statuses: Counter[tuple[str, int]] = attrs.field(factory=Counter)

    async def send(self, requests: int, seed: int) -> None:
        """Send `requests` requests."""
        source = random.Random(seed)
        async with connected(self.served.server, seconds=ANSWERED_WITHIN * requests) as client:
            for _ in range(requests):
                request = spoiled_request(source, "default", self.stored)
                body = json.dumps(request.body).encode() if request.method == "POST" else b""
                await client.request(request.method, request.path, body)
                with trio.fail_after(ANSWERED_WITHIN):
                    answer = await client.receive_response()
                check(request, answer)
                self.statuses[route(request), answer.status] += 1


def check(request: SpoiledRequest, answer: RawResponse) -> None:
    said = (
        f"{request.method} {request.path} {json.dumps(request.body)}: {answer.status} {answer.body[-500:]!r}"
    )
    assert answer.status == 200 or answer.status in REFUSALS, said
    assert not any(fault in answer.body for fault in FAULTS), said
    if answer.status != 200:
        assert answer.json()["error"], said
        assert answer.json()["status"] == answer.status, said


def route(request: SpoiledRequest) -> str:
    """Return the method and path without ids and query."""
    path = urlsplit(request.path).path
    return f"{request.method} {re.sub('/(resp|conv|msg|chatcmpl)[_-][0-9a-z]+', '/…', path)}"


async def store(served: Served) -> dict[str, str]:
    """Store one record of each type; return their ids."""
    user = [{"role": "user", "content": "Hi"}]
    kinds: dict[str, tuple[str, Json]] = {
        "completion": ("/v1/chat/completions", {"messages": user, "max_tokens": 8, "store": True}),
        "conversation": ("/v1/conversations", {"items": user}),
        "response": ("/v1/responses", {"input": "Hi", "max_output_tokens": 8}),
    }
    ids = {}
    for kind, (path, body) in kinds.items():
        answer = await fetch(served.server, "POST", path, {"model": "default", **body})
        ids[kind] = answer.json()["id"]
    items = await fetch(served.server, "GET", f"/v1/conversations/{ids['conversation']}/items")
    return {**ids, "item": items.json()["data"][0]["id"]}


@pytest.fixture
def settings(tiny_model: Callable[..., Path], tiny_encoder: Callable[..., Path]) -> Settings:
    chats = tiny_model("qwen3", num_hidden_layers=1)
    return Settings(models=(str(chats), str(tiny_encoder("bert"))), max_context=1_024)


async def test_what_is_not_spoiled_is_answered(settings: Settings) -> None:
    async with serving(settings) as served, connected(served.server, seconds=300) as client:
        for path, body in BODIES:
            await client.request("POST", path, json.dumps({"model": "default", **body}).encode())
            answer = await client.receive_response()
            assert answer.status == 200, (path, answer.body)


@pytest.mark.parametrize("requests", [240, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.deep
async def test_every_request_is_answered_and_none_with_a_fault_of_ours(
    settings: Settings, requests: int
) -> None:
    seed = 1 if requests < 1_000 else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    async with serving(settings) as served:
        fuzzer = Fuzzer(served, await store(served))
        async with trio.open_nursery() as nursery:
            for number in range(AT_ONCE):
                nursery.start_soon(fuzzer.send, requests // AT_ONCE, seed + number)
    print(sorted(fuzzer.statuses.items()))
    answered = {name for name, status in fuzzer.statuses if status == 200}
    assert answered >= {f"POST {path}" for path, _ in BODIES}
    refused = sum(count for (_, status), count in fuzzer.statuses.items() if status != 200)
    assert requests / 10 < refused < requests * 0.9
