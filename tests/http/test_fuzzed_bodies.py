"""Bodies that are nearly right, for every endpoint: each is answered, none with a fault of ours."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from greenroom.schemas.settings import Settings
from greenroom.tests.support.http_servers import RawResponse, Served, connected, serving
from greenroom.tests.support.spoiled_bodies import BODIES, Json, spoiled_body

AT_ONCE = 4
ANSWERED_WITHIN = 120.0
"""Seconds, for a whole answer on a busy machine; no body asks for more than a full context."""
FAULTS = (b"internal_error", b"model_crashed", b"model_hung", b"Traceback")
REFUSALS = {400, 404}
"""404: where a body names another model, response or conversation."""


@attrs.define
class Fuzzer:
    """Sends bodies, one after the other on each connection."""

    served: Served
    statuses: Counter[tuple[str, int]] = attrs.field(factory=Counter)

    async def send(self, bodies: int, seed: int) -> None:
        """Send that many."""
        source = random.Random(seed)
        async with connected(self.served.server, seconds=ANSWERED_WITHIN * bodies) as client:
            for _ in range(bodies):
                path, body = spoiled_body(source, "default")
                await client.request("POST", path, json.dumps(body).encode())
                with trio.fail_after(ANSWERED_WITHIN):
                    answer = await client.receive_response()
                check(path, body, answer)
                self.statuses[path, answer.status] += 1


def check(path: str, body: Json, answer: RawResponse) -> None:
    said = f"{path} {json.dumps(body)}: {answer.status} {answer.body[-500:]!r}"
    assert answer.status == 200 or answer.status in REFUSALS, said
    assert not any(fault in answer.body for fault in FAULTS), said
    if answer.status != 200:
        assert answer.json()["error"], said
        assert answer.json()["status"] == answer.status, said


async def test_what_is_not_spoiled_is_answered(tiny_model: Callable[..., Path]) -> None:
    settings = Settings(models=(str(tiny_model("qwen3", num_hidden_layers=1)),), max_context=1_024)
    async with serving(settings) as served, connected(served.server, seconds=300) as client:
        for path, body in BODIES:
            await client.request("POST", path, json.dumps({"model": "default", **body}).encode())
            answer = await client.receive_response()
            assert answer.status == 200, (path, answer.body)


@pytest.mark.parametrize("bodies", [160, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_every_body_is_answered_and_none_with_a_fault_of_ours(
    tiny_model: Callable[..., Path], bodies: int
) -> None:
    seed = 1 if bodies < 1_000 else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    folder = tiny_model("qwen3", num_hidden_layers=1)
    settings = Settings(models=(f"{folder}",), max_context=1_024)
    async with serving(settings) as served:
        fuzzer = Fuzzer(served)
        async with trio.open_nursery() as nursery:
            for number in range(AT_ONCE):
                nursery.start_soon(fuzzer.send, bodies // AT_ONCE, seed + number)
    print(sorted(fuzzer.statuses.items()))
    answered = {path for path, status in fuzzer.statuses if status == 200}
    assert answered == {path for path, _ in BODIES}
    refused = sum(count for (_, status), count in fuzzer.statuses.items() if status != 200)
    assert bodies / 10 < refused < bodies * 0.9
