"""A key that takes all it can get of each pot leaves room for another key."""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from greenroom.http.guard.local_programs import LocalPrograms, Peer, peer_of
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.operations.test_pull_routes import WEIGHTS, files_of
from greenroom.tests.http.responses.test_socket_bounds import refused
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.clients.web_socket_clients import open_socket
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub

HELD = "org/held"
"""A model of the operator whose weights do not arrive, so that its requests wait."""


@pytest.fixture
def hub(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = files_of(tiny_model("llama"))
    names = [HELD, *(f"org/{who}{number:02}" for who in "ab" for number in range(40))]
    with open_hub(dict.fromkeys(names, files)) as hub:
        hub.faults = {f"{name}/{WEIGHTS}": Fault(1, "hold") for name in names}
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub


@attrs.frozen
class Shared:
    """A server with three keys, of which `c` may not bring models."""

    served: Served
    keys: dict[str, str]

    async def ask(self, who: str, path: str, body: Any) -> RawResponse:
        return await fetch(self.served.server, "POST", path, body, x_api_key=self.keys[who])

    async def fill(self, who: str, path: str, bodies: Iterator[Any], refusal: str) -> int:
        """Send requests until one is refused; return the number before."""
        for sent, body in enumerate(bodies):
            answer = await self.ask(who, path, body)
            if answer.status != 200:
                assert answer.json()["error"]["code"] == refusal
                return sent
        raise AssertionError("nothing was refused")


@pytest.fixture
async def shared(tiny_model: TinyModel, tmp_path: Path, hub: Hub) -> AsyncIterator[Shared]:
    settings = Settings(
        models=(str(tiny_model("llama")), HELD),
        db=str(tmp_path / "db"),
        store_max_bytes=8 << 20,
        max_connections=128,
        allow_downloads=True,
        shutdown_timeout=5.0,
    )
    async with serving(settings, status_timeout=0.01) as served:
        made = await fetch(served.server, "POST", "/admin/keys", {"name": "boss", "admin": True})
        boss, keys = made.json()["secret"], {}
        for name in "abc":
            body = {"name": name, "downloads": name != "c"}
            made = await fetch(served.server, "POST", "/admin/keys", body, x_api_key=boss)
            keys[name] = made.json()["secret"]
        yield Shared(served, keys)


async def test_background_responses(shared: Shared) -> None:
    body = {"model": HELD, "input": "Hi", "background": True}
    refusal = "too_many_background_responses"
    taken = [await shared.fill(who, "/v1/responses", itertools.repeat(body), refusal) for who in "ab"]
    assert taken == [56, 4]


async def test_stored_bytes(shared: Shared) -> None:
    items = [{"role": "user", "content": "x" * 1_000_000}]
    taken = [
        await shared.fill(who, "/v1/conversations", itertools.repeat({"items": items}), "storage_full")
        for who in "ab"
    ]
    assert taken[0] in (3, 4)
    assert taken[1] in (1, 2)
    stored = await shared.ask("b", "/v1/responses", {"model": "llama", "input": "Hi", "max_output_tokens": 2})
    assert stored.status == 200


async def test_web_sockets(shared: Shared) -> None:
    taken: Counter[str] = Counter()
    async with AsyncExitStack() as sockets:
        for who, count in (("a", 28), ("b", 2)):
            for _ in range(count):
                await sockets.enter_async_context(open_socket(shared.served, x_api_key=shared.keys[who]))
                taken[who] += 1
            answer = await refused(shared.served, x_api_key=shared.keys[who])
            assert answer.json()["error"]["code"] == "too_many_connections"
    assert taken == {"a": 28, "b": 2}


async def test_decoded_objects(shared: Shared) -> None:
    def body(model: str, objects: int, **fields: Any) -> dict[str, Any]:
        message = {"role": "user", "content": "Hi"}
        return {"model": model, "messages": [message], "of_no_meaning": [[]] * objects, **fields}

    async def stream() -> None:
        async with connected(shared.served.server) as client:
            await client.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(body(HELD, 95_000, stream=True)).encode(),
                x_api_key=shared.keys["a"],
            )
            await client.read_until(b"\r\n\r\n")
            begun.append(True)
            await trio.sleep_forever()

    begun: list[bool] = []
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(stream)
        with trio.fail_after(300):
            for objects in (6_000, 60_000):
                answer = await shared.ask("b", "/v1/chat/completions", body("llama", objects, max_tokens=1))
                assert answer.status == 200
        nursery.cancel_scope.cancel()


async def test_downloads(shared: Shared, hub: Hub) -> None:
    async def wait_for(who: str, name: str) -> None:
        answer = await shared.ask(who, "/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})
        refusals[who] += "too_many_pulls" in answer.body.decode()

    for path in ("/v1/completions", "/api/generate", "/api/embed"):
        body = {"model": "org/c00", "prompt": "a"} if path == "/v1/completions" else {"model": "org/c00"}
        assert (await shared.ask("c", path, body)).status == 404
    assert not any("org/c00" in path for path in hub.paths)
    refusals: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        for who, count in (("a", 40), ("b", 1)):
            for number in range(count):
                nursery.start_soon(wait_for, who, f"org/{who}{number:02}")
            with trio.fail_after(300):
                while refusals["a"] < 12:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        with trio.fail_after(300):
            while not any("/api/models/org/b00" in path for path in hub.paths):  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert refusals == {"a": 12}
        nursery.cancel_scope.cancel()


PROGRAM = """
import socket, sys
port, count, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
head = b"POST /v1/completions HTTP/1.1\\r\\nhost: localhost\\r\\nauthorization: Bearer none\\r\\n"
head += b"content-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body)
sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
for each in sockets:
    each.sendall(head + body)
print(sockets[0].recv(12).decode())
"""
"""A client that sends its requests at once, with the key that programs bring that must have one."""


async def test_programs_of_one_address_share_without_keys(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), max_batch=4, shutdown_timeout=60.0)

    async def run(count: int, **fields: Any) -> str:
        body = json.dumps({"model": "qwen3", "prompt": "a", "temperature": 0, **fields})
        command = [sys.executable, "-S", "-c", PROGRAM, str(served.server.port), str(count), body]
        done = await trio.run_process(command, capture_stdout=True, start_new_session=True)
        return done.stdout.decode()

    async def in_flight() -> int:
        return len((await fetch(served.server, "GET", "/admin/requests")).json()["requests"])

    async def are_all_there() -> bool:
        return await in_flight() == 2

    async with serving(settings) as served, trio.open_nursery() as nursery:
        nursery.start_soon(partial(run, 2, n=4, max_tokens=20_000, ignore_eos=True))
        await eventually(are_all_there)
        with trio.fail_after(300):
            assert await run(1, max_tokens=3) == "HTTP/1.1 200\n"
        assert await in_flight() == 2
        nursery.cancel_scope.cancel()


async def test_programs_that_take_turns_are_told_apart_while_slots_are_left() -> None:
    programs = LocalPrograms(slots=32)
    first, same, other = (Peer(program=number, is_known=True) for number in (1, 1, 2))
    with ExitStack() as running:
        for peer in (first, same, other):
            await programs.number(peer, running, takes_turns=True)
        assert [first.number, same.number, other.number] == [None, None, 2]
        await programs.number(chat := Peer(program=3, is_known=True), running)
        assert chat.number is None


def test_the_program_at_a_unix_socket_is_known_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_of(ours)
    assert peer is not None
    assert (peer.program, peer.is_known) == (os.getpgrp(), True)
