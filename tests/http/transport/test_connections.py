"""What happens to connections: each test fails without one mend of the stack below."""

from __future__ import annotations

import socket
from types import TracebackType

import pytest
import trio
import trio.testing
from quart import Response, request
from quart.wrappers.response import ResponseBody
from quart_trio import QuartTrio

from greenroom.http.answering.current_request import request_resources
from greenroom.http.transport.accept_loop import AcceptLoop, open_listeners
from greenroom.http.transport.connection import Connection
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.settings import Settings
from greenroom.tests.support.http_servers import Server, connected, fetch, running

LARGE = b"x" * 65536


class Endless(ResponseBody):
    """A body that goes on until somebody ends it."""

    def __init__(self, piece: bytes, ended: trio.Event, pieces: int = 2**62) -> None:
        self._piece, self._ended, self._pieces = piece, ended, pieces

    async def __aenter__(self) -> Endless:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        self._pieces -= 1
        await trio.sleep(0.01)
        return self._piece


def make_app(ended: trio.Event | None = None) -> QuartTrio:
    """Routes that answer at once, stream, wait for ever, and echo."""
    ended = trio.Event() if ended is None else ended
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection

    @app.get("/")
    async def at_once() -> str:
        return "ok"

    @app.get("/stream/<int:pieces>/<int:size>")
    async def stream(pieces: int, size: int) -> Response:
        response = Response(Endless(b"x" * size, ended, pieces))
        response.timeout = None
        return response

    @app.get("/wait")
    async def wait() -> Response:
        request_resources().callback(ended.set)
        await trio.sleep_forever()
        raise AssertionError

    @app.post("/length")
    async def length() -> str:
        return str(len(await request.get_data()))

    @app.post("/unread")
    async def unread() -> tuple[str, int]:
        return "not wanted", 413

    return app


async def emptied(server: Server) -> None:
    """Wait until the server has no connection left."""
    with trio.fail_after(60):
        while server.loop.connections:  # noqa: ASYNC110
            await trio.sleep(0.005)


async def test_connection_close_is_honoured() -> None:
    async with running(make_app(), Settings(idle_connection=600)) as server:
        for path in ("/", "/stream/3/10"):
            async with connected(server) as client:
                await client.request("GET", path, connection="close")
                assert (await client.answer()).status == 200
                assert await client.read_to_end() == b""
        await emptied(server)


async def test_idle_connections_are_reaped() -> None:
    async with running(make_app(), Settings(idle_connection=2.0)) as server, trio.open_nursery() as nursery:
        reaped = 0

        async def idle(path: str | None) -> None:
            nonlocal reaped
            async with connected(server) as client:
                if path:
                    await client.request("GET", path)
                    await client.answer()
                assert await client.read_to_end() == b""
                reaped += 1

        async with trio.open_nursery() as clients:
            for i in range(200):
                clients.start_soon(idle, (None, "/", "/stream/1/5")[i % 3])
        assert reaped == 200
        await emptied(server)
        nursery.cancel_scope.cancel()


async def test_a_closed_connection_leaves_at_once_and_not_with_its_idle_timer() -> None:
    async with running(make_app(), Settings(idle_connection=600)) as server:
        async with connected(server) as client:
            await client.request("GET", "/")
            await client.answer()
        await emptied(server)


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
        await emptied(server)


async def test_a_stream_may_last_longer_than_quarts_time_limit() -> None:
    app = make_app()
    app.config["RESPONSE_TIMEOUT"] = 0.05
    async with running(app, Settings()) as server:
        assert len((await fetch(server, "GET", "/stream/20/10")).body) == 200


async def test_keep_alive_serves_one_request_after_the_other() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        for _ in range(3):
            for path in ("/", "/stream/2/5"):
                await client.request("GET", path)
                assert (await client.answer()).status == 200
        assert server.loop.connections == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.request("GET", "/stream/3/7")
        await client.request("GET", "/")
        await client.request("POST", "/length", b"12345")
        assert [(await client.answer()).body for _ in range(3)] == [b"x" * 21, b"ok", b"5"]


async def test_a_pipelined_request_does_not_hold_up_a_drain() -> None:
    async with running(make_app(), Settings(shutdown_timeout=600)) as server, connected(server) as client:
        await client.request("GET", "/stream/10/5")
        await client.request("GET", "/")
        await client.read_until(b"xx")
        server.drain.set()
        assert (await client.read_to_end()).count(b"x") == 48
        await client.stream.aclose()
        with trio.fail_after(60):
            await server.stopped.wait()


async def test_hanging_up_is_seen_behind_a_pipelined_request() -> None:
    ended = trio.Event()
    async with running(make_app(ended), Settings()) as server:
        async with connected(server) as client:
            await client.request("GET", "/stream/1000000/10")
            await client.request("GET", "/wait")
            await client.read_until(b"xx")
        with trio.fail_after(60):
            await ended.wait()
        await emptied(server)


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
                with trio.fail_after(60):
                    await ended.wait()
        with trio.fail_after(60):
            await ended.wait()
        await emptied(server)


async def test_a_reader_that_stalls_is_given_up() -> None:
    ended = trio.Event()
    async with running(make_app(ended), Settings(), send_timeout=0.2) as server, connected(server) as client:
        await client.request("GET", "/stream/1000000/65536")
        with trio.fail_after(60):
            await ended.wait()
        await emptied(server)


async def test_a_slow_reader_gets_everything() -> None:
    async with running(make_app(), Settings(), send_timeout=60) as server, connected(server) as client:
        await client.request("GET", "/stream/10/2000000")
        body = (await client.answer()).body
        assert body == b"x" * 20_000_000


async def test_draining_waits_for_no_idle_and_no_stalled_reader() -> None:
    # Neither the connection's idle time nor the stalled reader's patience would end it in time.
    settings = Settings(shutdown_timeout=1.0, idle_connection=600)
    async with running(make_app(), settings, send_timeout=600) as server, connected(server) as idle:
        await idle.request("GET", "/")
        await idle.answer()
        async with connected(server) as stalled:
            await stalled.request("GET", "/stream/1000000/65536")
            await stalled.read_until(b"xx")
            server.drain.set()
            assert await idle.read_to_end() == b""
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


async def test_draining_accepts_no_new_connection() -> None:
    async with running(make_app(), Settings(shutdown_timeout=600)) as server, connected(server) as client:
        await client.request("GET", "/stream/30/10")
        await client.read_until(b"xx")
        server.drain.set()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", server.port)


async def test_cancelling_the_server_ends_a_stalled_reader_too() -> None:
    with trio.fail_after(60):
        async with running(make_app(), Settings()) as server, connected(server) as client:
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
                await client.answer()
            refused = await fetch(server, "GET", "/")
            assert refused.status == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "too_many_connections"
        await emptied(server)
        assert (await fetch(server, "GET", "/")).status == 200


async def test_an_answer_before_the_end_of_the_body_is_seen() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        head = f"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: {200 * len(LARGE)}\r\n\r\n"
        await client.send(head.encode())
        async with trio.open_nursery() as nursery:

            async def upload() -> None:
                for _ in range(100):
                    await client.send(LARGE)

            nursery.start_soon(upload)
            assert (await client.answer()).status == 413
        await client.stream.aclose()
        await emptied(server)


async def test_expecting_clients_are_told_to_continue() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(
            b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        assert b"100" in await client.read_until(b"\r\n\r\n")
        await client.send(b"abc")
        assert (await client.answer()).body == b"3"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", 431),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ],
)
async def test_what_is_no_http_is_answered_with_a_problem(sent: bytes, status: int) -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(sent)
        answer = await client.answer()
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-request-id"].startswith("req_")
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert await client.read_to_end() == b""


async def test_broken_chunks_end_the_request() -> None:
    async with running(make_app(), Settings()) as server:
        async with connected(server) as client:
            await client.send(b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
            await client.read_to_end()
        await emptied(server)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade, http2-settings\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    ],
)
async def test_upgrades_are_ignored(head: bytes) -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(head)
        assert (await client.answer()).body == b"ok"


async def test_a_client_of_http_1_0_gets_a_stream_without_chunks() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(b"GET /stream/3/10 HTTP/1.0\r\n\r\n")
        head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body == b"x" * 30


async def test_head_has_no_body() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.request("HEAD", "/stream/3/10", connection="close")
        head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
        assert b" 200 " in head
        assert body == b""


async def test_an_inherited_socket_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        port = inherited.getsockname()[1]
        settings = Settings(port=1)
        loop, drain = AcceptLoop(make_app(), settings), trio.Event()
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners(settings, [inherited])
            addresses: tuple[str, ...] = await nursery.start(loop.run, listeners, drain)
            assert addresses == (f"http://127.0.0.1:{port}",)
            server = Server(addresses[0], loop, drain, trio.Event())
            assert (await fetch(server, "GET", "/")).body == b"ok"
            drain.set()


async def test_the_host_decides_on_which_addresses_it_listens() -> None:
    async with running(make_app(), Settings(host="0.0.0.0")) as server:
        assert server.address == f"http://0.0.0.0:{server.port}"
        assert (await fetch(server, "GET", "/")).body == b"ok"


async def test_a_name_with_several_addresses_gets_one_free_port() -> None:
    async with running(make_app(), Settings(host="localhost")) as server:
        assert server.port > 0
        assert (await fetch(server, "GET", "/")).body == b"ok"


async def test_a_taken_port_is_an_error_at_once() -> None:
    async with running(make_app(), Settings()) as server:
        with pytest.raises(OSError, match="in use"):
            await open_listeners(Settings(port=server.port), ())
