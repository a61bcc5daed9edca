"""Servers on real sockets, and clients that send raw bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio
from hypercorn.typing import ASGIFramework

from greenroom.actors.engines.engines import Engines
from greenroom.actors.system import System, open_system
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import closing_responses, create_app_with, error_shapes, web_sockets
from greenroom.http.guard.keys import KeyWatch
from greenroom.http.transport.accept_loop import AcceptLoop, open_listeners
from greenroom.http.transport.request_head import ClosingResponses
from greenroom.http.transport.socket_stream import SEND_TIMEOUT
from greenroom.http.transport.tls import Certificates
from greenroom.http.transport.web_socket import NO_WEB_SOCKETS, WebSockets
from greenroom.schemas.settings.settings import Settings


@attrs.frozen
class Server:
    """A running server.

    Args:
        drain: Event to set to stop the server as a signal would.
        stopped: Event set when the server has returned.
    """

    addresses: tuple[str, ...]
    loop: AcceptLoop
    drain: trio.Event
    stopped: trio.Event

    @property
    def address(self) -> str:
        """First address of the server."""
        return self.addresses[0]

    @property
    def port(self) -> int:
        """Port that the server listens on."""
        port = urlsplit(self.address).port
        assert port
        return port


UNRECORDED = ClosingResponses(error_shapes)


@asynccontextmanager
async def running(
    app: ASGIFramework,
    settings: Settings,
    send_timeout: float = SEND_TIMEOUT,
    sockets: WebSockets = NO_WEB_SOCKETS,
    responses: ClosingResponses = UNRECORDED,
) -> AsyncIterator[Server]:
    """Serve an application with our accept loop, on a free port."""
    settings = attrs.evolve(settings, port=0)
    certificates = Certificates(settings)
    loop = AcceptLoop(app, settings, send_timeout, responses, sockets, certificates)
    drain, stopped = trio.Event(), trio.Event()

    async def run(task_status: trio.TaskStatus[tuple[str, ...]]) -> None:
        await loop.run(await open_listeners(settings, ()), drain, task_status)
        stopped.set()

    async with trio.open_nursery() as nursery:
        addresses: tuple[str, ...] = await nursery.start(run)
        yield Server(addresses, loop, drain, stopped)
        nursery.cancel_scope.cancel("the test is over")


@attrs.frozen
class Served:
    """A system with a server in front."""

    server: Server
    system: System

    @property
    def base_url(self) -> str:
        """Base URL for OpenAI's clients."""
        return f"{self.server.address}/v1"


@asynccontextmanager
async def serving(
    settings: Settings,
    *,
    engines: Engines | None = None,
    status_timeout: float = 600.0,
    send_timeout: float = SEND_TIMEOUT,
    hang_timeout: float = 600.0,
) -> AsyncIterator[Served]:
    """Serve a whole system from this process."""
    async with open_system(settings, engines=engines, hang_timeout=hang_timeout) as system:
        services = RouteServices(system.refs, settings, status_timeout)
        app = create_app_with(services)
        watch = KeyWatch(services.door.ring, system.refs, settings.db)
        await watch.begin()
        await system.start(_watch, watch.run)
        await system.start(_watch, partial(services.deadlines.run, system.refs.pool))
        async with running(
            app, settings, send_timeout, web_sockets(app, services), closing_responses(services)
        ) as server:
            yield Served(server, system)


async def _watch(run: Callable[[], Awaitable[None]], task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await run()


@attrs.frozen
class RawResponse:
    """Status, headers and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


class RawClient:
    """A connection on which a test sends exact bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        await self.stream.send_all(data)

    async def request(
        self, method: str, path: str, body: bytes = b"", *, host: str = "localhost", **headers: str
    ) -> None:
        """Send a request; underscores in header names become hyphens."""
        fields = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body:
            fields = {"content-type": "application/json", "content-length": str(len(body)), **fields}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def read_until(self, mark: bytes) -> bytes:
        """Return all bytes up to and including `mark`."""
        searched = 0
        while self._buffer.find(mark, searched) < 0:
            searched = max(0, len(self._buffer) - len(mark) + 1)
            received = await self.stream.receive_some()
            assert received, f"the connection ended after {bytes(self._buffer)!r}"
            self._buffer += received
        end = self._buffer.index(mark) + len(mark)
        found = bytes(self._buffer[:end])
        del self._buffer[:end]
        return found

    async def receive_response(self) -> RawResponse:
        """Return the next response, with a content-length or chunked."""
        head = (await self.read_until(b"\r\n\r\n")).decode()
        line, *fields = head.rstrip().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)
        }
        status = int(line.split()[1])
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while (size := int(await self.read_until(b"\r\n"), 16)) > 0:
                body += await self._read_exactly(size)
                await self.read_until(b"\r\n")
            await self.read_until(b"\r\n")
        else:
            body = await self._read_exactly(int(headers.get("content-length", 0)))
        return RawResponse(status, headers, body)

    async def read_to_end(self) -> bytes:
        """Return all bytes until the server closes the connection, cleanly or not."""
        try:
            async for received in self.stream:
                self._buffer += received
        except trio.BrokenResourceError:
            pass
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            received = await self.stream.receive_some()
            assert received, f"the connection ended after {bytes(self._buffer)!r}"
            self._buffer += received
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found


@asynccontextmanager
async def connected(server: Server, seconds: float = 600.0) -> AsyncIterator[RawClient]:
    """Open a raw connection; fail the test if the server does not answer in time."""
    with trio.fail_after(seconds):
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            yield RawClient(stream)


async def fetch(server: Server, method: str, path: str, body: Any = None, **headers: str) -> RawResponse:
    """Send one request on a new connection; a body is sent as JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    async with connected(server) as client:
        await client.request(method, path, data, **headers)
        return await client.receive_response()
