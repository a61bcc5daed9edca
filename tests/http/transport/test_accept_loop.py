"""Listening, draining, limits, and the crash of one connection."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx2
import pytest
import structlog.testing
import trio
import trio.testing

from greenroom.http.transport.connection import Connection
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.connection_app import make_app, wait_until_closed
from greenroom.tests.support.servers.http_servers import RawClient, connected, fetch, running
from greenroom.tests.support.servers.server_processes import ServerProcess, serving


async def test_a_pipelined_request_does_not_hold_up_a_drain() -> None:
    async with running(make_app(), Settings(shutdown_timeout=600)) as server, connected(server) as client:
        await client.request("GET", "/stream/10/5")
        await client.request("GET", "/")
        await client.read_until(b"xx")
        server.drain.set()
        assert (await client.read_to_end()).count(b"x") == 48
        await client.stream.aclose()
        with trio.fail_after(300):
            await server.stopped.wait()


async def test_draining_waits_for_no_idle_and_no_stalled_reader() -> None:
    # The timeouts of idle connections, stalled readers and shutdown are all longer than the test.
    settings = Settings(shutdown_timeout=600, idle_connection=600)
    async with running(make_app(), settings, send_timeout=600) as server, connected(server) as idle:
        await idle.request("GET", "/")
        await idle.receive_response()
        async with connected(server) as stalled:
            await stalled.request("GET", "/stream/1000000/65536")
            await stalled.read_until(b"xx")
            server.drain.set()
            assert await idle.read_to_end() == b""
            await server.stopped.wait()


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /length HTTP/1.1\r\n",
        b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n12",
        b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n12",
        b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n12",
    ],
    ids=["nothing", "head", "body", "chunked body", "answered"],
)
async def test_draining_waits_for_no_client_that_has_not_asked(begun: bytes) -> None:
    settings = Settings(shutdown_timeout=600, idle_connection=600)
    async with running(make_app(), settings) as server, connected(server, 30) as client:
        await client.send(begun)
        await trio.testing.wait_all_tasks_blocked()
        server.drain.set()
        # The client keeps its connection open.
        await server.stopped.wait()
        answer = await client.read_to_end()
        if b"/length" in begun and b"\r\n\r\n" in begun:
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"draining"' in answer.replace(b" ", b"")


async def test_draining_passes_over_who_has_just_been_refused() -> None:
    lengths = b"Content-Length: 9\r\nTransfer-Encoding: chunked"
    async with running(make_app(), Settings(shutdown_timeout=600)) as server, connected(server) as client:
        await client.send(b"POST /length HTTP/1.1\r\nHost: a\r\n" + lengths + b"\r\n\r\n")
        assert (await client.receive_response()).status == 400
        server.drain.set()
        await server.stopped.wait()


async def test_draining_lets_a_stream_end() -> None:
    async with running(make_app(), Settings(shutdown_timeout=600)) as server, connected(server) as client:
        await client.request("GET", "/stream/30/10")
        await client.read_until(b"xx")
        server.drain.set()
        rest = await client.read_to_end()
        assert rest.count(b"x") == 30 * 10 - 2
        assert rest.endswith(b"0\r\n\r\n")
        await client.stream.aclose()
        await server.stopped.wait()


async def test_who_comes_during_a_drain_is_told_to_retry_until_the_socket_closes() -> None:
    async with running(make_app(), Settings(shutdown_timeout=600)) as server, connected(server) as client:
        await client.request("GET", "/stream/30/10")
        await client.read_until(b"xx")
        server.drain.set()
        await trio.testing.wait_all_tasks_blocked()
        refused = await fetch(server, "GET", "/")
        assert (refused.status, b"draining" in refused.body) == (503, True)
        assert int(refused.headers["retry-after"]) > 0
        await client.read_to_end()
        await client.stream.aclose()
        await server.stopped.wait()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", server.port)


async def test_cancelling_the_server_ends_a_stalled_reader_too() -> None:
    with trio.fail_after(300):
        async with running(make_app(), Settings(), send_timeout=600) as server, connected(server) as client:
            await client.request("GET", "/stream/1000000/65536")
            await client.read_until(b"xx")


async def test_one_connections_crash_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Connection._receive

    async def crash_at_a_word(self: Connection) -> bytes:
        data = await receive(self)
        if b"crash" in data:
            raise ValueError("planted")
        return data

    monkeypatch.setattr(Connection, "_receive", crash_at_a_word)
    async with running(make_app(), Settings()) as server, connected(server) as bystander:
        await bystander.request("GET", "/stream/30/10")
        await bystander.read_until(b"xx")
        async with connected(server) as client:
            await client.send(b"crash")
            assert await client.read_to_end() == b""
        assert (await fetch(server, "GET", "/")).body == b"ok"
        assert (await bystander.read_until(b"0\r\n\r\n")).count(b"x") == 298


async def test_connections_over_the_limit_are_told_to_try_later() -> None:
    async with running(make_app(), Settings(max_connections=2)) as server:
        async with connected(server) as first, connected(server) as second:
            for client in (first, second):
                await client.request("GET", "/")
                await client.receive_response()
            refused = await fetch(server, "GET", "/")
            assert refused.status == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "too_many_connections"
        await wait_until_closed(server)
        assert (await fetch(server, "GET", "/")).status == 200


CONNECTIONS = 150
PROMPT = {"model": "default", "prompt": "Hello"}
PROBE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.deep
def test_a_flood_of_connections_is_answered(tiny_model: TinyModel) -> None:
    with serving(str(tiny_model("qwen3")), descriptors=64) as server, calm_stream(server) as calm:
        with ExitStack() as flood:
            clients = [flood.enter_context(connect(server)) for _ in range(CONNECTIONS)]
            answers = Counter(probe(client) for client in clients)
        assert set(answers) == {200, 503}
        assert answers.total() == CONNECTIONS
        assert b"data: [DONE]" in b"".join(iter(lambda: calm.recv(65536), b""))
        # The server may not have noticed all closed connections yet.
        assert 200 in (probe_alone(server) for _ in range(1000))
        assert {probe_alone(server) for _ in range(3)} == {200}
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    events = Counter(line["event"] for line in server.log)
    assert events["connections refused"] == 1
    assert [line["descriptors"] for line in server.log if line["event"] == "too few descriptors"] == [64]
    assert "".join(line["exception"] for line in server.log if "exception" in line) == ""


@contextmanager
def calm_stream(server: ServerProcess) -> Iterator[socket.socket]:
    """Start a stream before the flood; its connection closes at its end."""
    # Load the model first: its libraries open many files, and 64 descriptors are few.
    httpx2.post(f"{server.address}/v1/completions", json={**PROMPT, "max_tokens": 1}, timeout=600)
    encoded = json.dumps({**PROMPT, "max_tokens": 1000, "stream": True}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(encoded)}\r\n\r\n"
    )
    with connect(server) as client:
        client.sendall(head.encode() + encoded)
        received = b""
        while b'"text"' not in received:
            received += client.recv(65536)
        yield client


def connect(server: ServerProcess) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def probe(client: socket.socket) -> int:
    """Send a health probe; return the status of its answer, and leave the connection open."""
    with suppress(OSError):  # The server may have refused the connection and closed it already.
        client.sendall(PROBE)
    answer = b""
    while b"\r\n\r\n" not in answer:
        received = client.recv(65536)
        assert received, answer
        answer += received
    return int(answer.split()[1])


def probe_alone(server: ServerProcess) -> int:
    with connect(server) as client:
        return probe(client)


async def test_a_client_is_refused_on_the_last_descriptor() -> None:
    with structlog.testing.capture_logs() as events:
        async with running(make_app(), Settings()) as server:
            with trio.socket.socket() as late, all_descriptors_taken():
                with trio.fail_after(300):
                    await late.connect(("127.0.0.1", server.port))
                    client = RawClient(trio.SocketStream(late))
                    answer = await client.receive_response()
                    assert answer.status == 503
                    assert answer.json()["error"]["code"] == "too_many_connections"
                    assert await client.read_to_end() == b""
                    late.shutdown(socket.SHUT_WR)
                    while server.loop._refusals._lingering:
                        await trio.lowlevel.checkpoint()
                    await trio.testing.wait_all_tasks_blocked()  # the next accept fails again
            assert (await fetch(server, "GET", "/")).body == b"ok"
    refusals = [event for event in events if event["event"] == "connections refused"]
    assert [event["reason"] for event in refusals] == ["descriptors"]


@contextmanager
def all_descriptors_taken() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 8, hard))
    taken = [lowest]
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_refused_clients_that_stay_make_room_for_others() -> None:
    async with running(make_app(), Settings(max_connections=1)) as server, connected(server) as first:
        await first.request("GET", "/")
        await first.receive_response()
        async with trio.open_nursery() as nursery:
            refused = 0

            async def stay() -> None:
                nonlocal refused
                async with connected(server) as client:
                    assert (await client.receive_response()).status == 503
                    refused += 1
                    await client.read_to_end()
                    await trio.sleep_forever()

            for _ in range(100):
                nursery.start_soon(stay)
            while refused < 100:  # noqa: ASYNC110
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert server.loop.connections == 1
        await first.stream.aclose()
        await wait_until_closed(server)
        assert (await fetch(server, "GET", "/")).status == 200
