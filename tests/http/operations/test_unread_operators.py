"""Scrapers and followers that ask and never read: they hold up nobody, and are cut off."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from greenroom.http.process.log_configuration import LINES, LOG_RING, LONGEST
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawClient, Server, fetch, serving

SCRAPES = 400
"""Scrapes of one connection, of over 1 kB each: many times what its sockets hold."""


@asynccontextmanager
async def never_reading(server: Server, path: str, times: int = 1) -> AsyncIterator[None]:
    """Ask on a connection with a small buffer, and read nothing."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", server.port))
    async with trio.SocketStream(sock) as stream:
        await RawClient(stream).send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * times)
        yield


@pytest.fixture
def full_ring() -> None:
    for _ in range(LINES):
        LOG_RING.record(None, "info", {"event": "x" * LONGEST})


@pytest.mark.usefixtures("full_ring")
async def test_they_hold_up_no_request_and_are_cut_off(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=600.0)
    async with serving(settings, send_timeout=1.0) as served, AsyncExitStack() as clients:
        server = served.server
        for path, times in (("/metrics", SCRAPES), ("/admin/logs", 1)) * 3:
            await clients.enter_async_context(never_reading(server, path, times))
        chat = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        assert (await fetch(server, "POST", "/v1/chat/completions", chat)).status == 200
        scraped = await fetch(server, "GET", "/metrics")
        assert (scraped.status, len(scraped.body) > 1_000) == (200, True)

        async def all_are_cut_off() -> bool:
            return server.loop.connections == 0

        await eventually(all_are_cut_off)


async def test_they_do_not_hold_up_the_end_of_the_server(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=600.0)
    async with serving(settings, send_timeout=600.0) as served, AsyncExitStack() as clients:
        server = served.server
        for path, times in (("/metrics", SCRAPES), ("/admin/logs", 1), ("/admin/events", 1)):
            await clients.enter_async_context(never_reading(server, path, times))
        await fetch(server, "POST", "/admin/models/load", {"model": "qwen3"})
        await served.system.drain()
        server.drain.set()
        with trio.fail_after(300):
            await server.stopped.wait()
