"""A client may leave in any phase and in any way: its connection and its request end at once.

The server's timeouts are longer than these tests wait, so no timeout can be the cause.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import psutil
import pytest
import trio
import trio.testing

from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    eventually,
    state,
    status,
)
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawClient, Served, connected, serving

GUARD = 30.0
"""Time limit in seconds: half of the timeouts of uploads and idle connections."""

PATH = "/v1/chat/completions"
_HANGS = itertools.count()
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()


@attrs.frozen
class Scene:
    """A server whose engine is in the state that a phase needs."""

    served: Served
    model: str
    faults: Faults

    async def ask(self, client: RawClient, stream: bool, text: str = "Hello") -> None:
        body = {"model": "default", "stream": stream, "max_tokens": 1000, "temperature": 0}
        messages = [{"role": "user", "content": text}]
        await client.request("POST", PATH, json.dumps({**body, "messages": messages}).encode())

    async def decode(self, client: RawClient) -> None:
        """Start an answer that hangs after its first tokens until it is cancelled."""
        text = f"Hang {next(_HANGS)}"
        self.faults.hang.add(text)
        await self.ask(client, stream=True, text=text)
        await client.read_until(b"\r\n\r\n")
        while not self.faults.hangs.is_set():  # noqa: ASYNC110
            await trio.sleep(0.001)

    async def until(self, **counts: int) -> None:
        """Wait until the pool has these numbers of requests."""

        async def reached() -> bool:
            now = await status(self.served.system.pool, self.model)
            return all(getattr(now, name) == count for name, count in counts.items())

        await eventually(reached)


async def fresh(scene: Scene, client: RawClient) -> None:
    await trio.testing.wait_all_tasks_blocked()


async def head(scene: Scene, client: RawClient) -> None:
    await client.send(HEAD)
    await trio.testing.wait_all_tasks_blocked()


async def body_not_begun(scene: Scene, client: RawClient) -> None:
    await client.send(HEAD + b"Content-Length: 1000000\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked()


async def body(scene: Scene, client: RawClient) -> None:
    await client.send(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"[" * 100_000)
    await trio.testing.wait_all_tasks_blocked()


async def chunked_body(scene: Scene, client: RawClient) -> None:
    await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n800\r\n123")
    await trio.testing.wait_all_tasks_blocked()


async def after_an_answer(scene: Scene, client: RawClient) -> None:
    await client.request("GET", "/livez")
    await client.receive_response()


async def loading(scene: Scene, client: RawClient) -> None:
    await scene.ask(client, stream=False)

    async def loads() -> bool:
        return await state(scene.served.system.pool, scene.model) is ModelState.LOADING

    await eventually(loads)


async def loading_with_another_behind(scene: Scene, client: RawClient) -> None:
    await loading(scene, client)
    await scene.ask(client, stream=False)
    await client.send(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"[" * 100_000)
    await trio.testing.wait_all_tasks_blocked()


async def waiting_for_a_slot(scene: Scene, client: RawClient) -> None:
    await scene.ask(client, stream=True)
    await scene.until(waiting=1)


async def prefill(scene: Scene, client: RawClient) -> None:
    await scene.ask(client, stream=True)
    await scene.until(running=2)


async def decode(scene: Scene, client: RawClient) -> None:
    await scene.decode(client)


async def decode_with_another_behind(scene: Scene, client: RawClient) -> None:
    await scene.decode(client)
    await scene.ask(client, stream=False)
    await trio.testing.wait_all_tasks_blocked()


Phase = Callable[[Scene, RawClient], Awaitable[None]]

TRANSPORT: list[Phase] = [fresh, head, body_not_begun, body, chunked_body, after_an_answer]
BEFORE_LOADING: list[Phase] = [loading, loading_with_another_behind]
BEHIND_A_NEIGHBOR: dict[Phase, int] = {waiting_for_a_slot: 1, prefill: 2}
DECODING: list[Phase] = [decode, decode_with_another_behind]
PHASES = [*TRANSPORT, *BEFORE_LOADING, *BEHIND_A_NEIGHBOR, *DECODING]


@asynccontextmanager
async def scene_of(phase: Phase, folder: Path) -> AsyncIterator[Scene]:
    """Run a server in which the phase lasts until the client leaves, with another request in the way if
    needed.
    """
    settings = Settings(models=(str(folder),), idle_connection=600, max_batch=BEHIND_A_NEIGHBOR.get(phase, 1))
    faults = Faults()
    if phase in BEFORE_LOADING:
        faults.gate = threading.Event()
    engines = FaultyEngines(settings, faults)
    async with serving(settings, engines=engines) as served, AsyncExitStack() as neighbours:
        scene = Scene(served, folder.name, faults)
        if phase in BEHIND_A_NEIGHBOR:
            await scene.decode(await neighbours.enter_async_context(connected(served.server)))
        try:
            yield scene
        finally:
            faults.release.set()
            if faults.gate is not None:
                faults.gate.set()


async def leave(client: RawClient, way: str) -> None:
    if way == "RST":
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if way == "half-close":
        await client.stream.send_eof()
        assert b"HTTP/1.1 400" not in await client.read_to_end()
    await client.stream.aclose()


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
async def test_a_client_that_leaves_leaves_nothing(phase: Phase, tiny_model: TinyModel) -> None:
    async with scene_of(phase, tiny_model("qwen3")) as scene:
        loop = scene.served.server.loop
        for way in ("FIN", "RST", "half-close"):
            neighbours, descriptors = loop.connections, psutil.Process().num_fds()
            before = await status(scene.served.system.pool, scene.model)
            async with connected(scene.served.server) as client:
                await phase(scene, client)
                assert loop.connections == neighbours + 1
                await leave(client, way)
            with trio.fail_after(GUARD):
                process = psutil.Process()
                while loop.connections > neighbours or process.num_fds() > descriptors:  # noqa: ASYNC110
                    await trio.sleep(0.001)
                await scene.until(waiting=before.waiting)
            if phase in DECODING:
                scene.faults.hang.clear()
                scene.faults.release.set()
                scene.faults.release, scene.faults.hangs = threading.Event(), threading.Event()
