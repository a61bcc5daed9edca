"""Listening, draining, limits, and the crash of one connection."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from greenroom.http.transport.connection import Connection
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.connection_app import make_app, wait_until_closed
from greenroom.tests.support.servers.http_servers import connected, fetch, running


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
