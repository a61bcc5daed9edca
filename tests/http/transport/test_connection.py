"""Ends of connections: each test fails without one of our patches of the libraries below."""

from __future__ import annotations

import contextlib
import math

import pytest
import trio
import trio.testing

from greenroom.http.transport.connection import LINGER_BYTES
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.connection_app import make_app, wait_until_closed
from greenroom.tests.support.servers.http_servers import connected, fetch, running

LARGE = b"x" * 65536


async def test_connection_close_is_honoured() -> None:
    async with running(make_app(), Settings(idle_connection=600)) as server:
        for path in ("/", "/stream/3/10"):
            async with connected(server) as client:
                await client.request("GET", path, connection="close")
                assert (await client.receive_response()).status == 200
                assert await client.read_to_end() == b""
        await wait_until_closed(server)


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Return a clock that runs in real time and can jump."""
    return trio.testing.MockClock(rate=1.0)


async def test_idle_connections_are_reaped(clock: trio.testing.MockClock) -> None:
    async with running(make_app(), Settings(idle_connection=3_600.0)) as server:
        answered = 0

        async def idle(path: str | None) -> None:
            nonlocal answered
            async with connected(server, math.inf) as client:
                if path:
                    await client.request("GET", path)
                    await client.receive_response()
                answered += 1
                assert await client.read_to_end() == b""

        async with trio.open_nursery() as clients:
            for i in range(200):
                clients.start_soon(idle, (None, "/", "/stream/1/5")[i % 3])
            while answered < 200 or server.loop.connections < 200:  # noqa: ASYNC110
                await trio.sleep(0.01)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(3_600.0)
        await wait_until_closed(server)


async def test_a_closed_connection_leaves_at_once_and_not_with_its_idle_timer() -> None:
    async with running(make_app(), Settings(idle_connection=600)) as server:
        async with connected(server) as client:
            await client.request("GET", "/")
            await client.receive_response()
        await wait_until_closed(server)


async def test_dribbled_headers_are_given_up() -> None:
    async with running(make_app(), Settings(idle_connection=0.3)) as server, connected(server) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        given_up = False
        while not given_up:
            try:
                await client.send(b"x-more: y\r\n")
            except trio.BrokenResourceError:
                given_up = True
            await trio.sleep(0.05)
        await wait_until_closed(server)


async def test_a_stream_may_last_longer_than_quarts_time_limit() -> None:
    app = make_app()
    app.config["RESPONSE_TIMEOUT"] = 0.05
    async with running(app, Settings()) as server:
        assert len((await fetch(server, "GET", "/stream/20/10")).body) == 200


async def test_hanging_up_is_seen_behind_a_pipelined_request() -> None:
    ended = trio.Event()
    async with running(make_app(ended), Settings()) as server:
        async with connected(server) as client:
            await client.request("GET", "/stream/1000000/10")
            await client.request("GET", "/wait")
            await client.read_until(b"xx")
        with trio.fail_after(300):
            await ended.wait()
        await wait_until_closed(server)


async def test_hanging_up_is_seen_behind_more_than_is_kept() -> None:
    ended = trio.Event()
    async with running(make_app(ended), Settings()) as server:
        async with connected(server) as client:
            await client.request("GET", "/wait")
            await client.send(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
            for _ in range(100):
                await client.send(LARGE)
        with trio.fail_after(300):
            await ended.wait()
        await wait_until_closed(server)


async def test_no_request_follows_one_behind_which_too_much_was_sent() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.request("GET", "/stream/50/10")
        await client.read_until(b"xx")
        await client.send(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n" + 9 * LARGE)
        rest = await client.read_to_end()
        assert rest.count(b"x") == 498
        assert rest.endswith(b"0\r\n\r\n")
        await client.stream.aclose()
        await wait_until_closed(server)


@pytest.mark.parametrize("path", ["/wait", "/stream/1000000/10"])
@pytest.mark.parametrize("leave", ["close", "reset", "half-close"])
async def test_hanging_up_ends_the_request(path: str, leave: str) -> None:
    ended = trio.Event()
    async with running(make_app(ended), Settings()) as server:
        async with connected(server) as client:
            await client.request("GET", path)
            if path != "/wait":
                await client.read_until(b"xx")
            else:
                await trio.testing.wait_all_tasks_blocked()
            if leave == "half-close":
                await client.stream.send_eof()
            elif leave == "reset":
                client.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if leave == "half-close":
                with trio.fail_after(300):
                    await ended.wait()
        with trio.fail_after(300):
            await ended.wait()
        await wait_until_closed(server)


async def test_a_reader_that_stalls_is_given_up() -> None:
    ended = trio.Event()
    async with running(make_app(ended), Settings(), send_timeout=0.2) as server, connected(server) as client:
        await client.request("GET", "/stream/1000000/65536")
        with trio.fail_after(300):
            await ended.wait()
        await wait_until_closed(server)


async def test_a_slow_reader_gets_everything() -> None:
    async with running(make_app(), Settings(), send_timeout=60) as server, connected(server) as client:
        await client.request("GET", "/stream/10/2000000")
        body = (await client.receive_response()).body
        assert body == b"x" * 20_000_000


async def test_an_answer_before_the_end_of_the_body_is_seen() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        head = f"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: {200 * len(LARGE)}\r\n\r\n"
        await client.send(head.encode())
        async with trio.open_nursery() as nursery:

            async def upload() -> None:
                with contextlib.suppress(trio.BrokenResourceError):  # the server does not read for ever
                    for _ in range(100):
                        await client.send(LARGE)

            nursery.start_soon(upload)
            assert (await client.receive_response()).status == 413
        await client.stream.aclose()
        await wait_until_closed(server)


async def test_an_answer_before_the_end_of_the_body_says_that_no_other_request_will_be_taken() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        # Clients that send head and body separately would keep the connection for their next request.
        await client.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        answer = await client.receive_response()
        assert (answer.status, answer.headers["connection"]) == (404, "close")
        await client.send(b"12345")
        assert await client.read_to_end() == b""


async def test_an_endless_upload_ends_soon_after_its_answer() -> None:
    sent = 0
    async with running(make_app(), Settings()) as server, connected(server, seconds=60) as client:
        await client.send(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
        with contextlib.suppress(trio.BrokenResourceError):
            while sent < 2 * LINGER_BYTES:
                await client.send(bytes(1 << 20))
                sent += 1 << 20
    assert sent < 2 * LINGER_BYTES
