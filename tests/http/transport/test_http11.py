"""HTTP/1.1 requests and responses as bytes on the wire."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.connection_app import make_app, wait_until_closed
from greenroom.tests.support.servers.http_servers import connected, running, serving


async def test_keep_alive_serves_one_request_after_the_other() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        for _ in range(3):
            for path in ("/", "/stream/2/5"):
                await client.request("GET", path)
                assert (await client.receive_response()).status == 200
        assert server.loop.connections == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.request("GET", "/stream/3/7")
        await client.request("GET", "/")
        await client.request("POST", "/length", b"12345")
        assert [(await client.receive_response()).body for _ in range(3)] == [b"x" * 21, b"ok", b"5"]


async def test_expecting_clients_are_told_to_continue() -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(
            b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        assert b"100" in await client.read_until(b"\r\n\r\n")
        await client.send(b"abc")
        assert (await client.receive_response()).body == b"3"


async def test_methods_are_upper_case_and_unknown_ones_are_refused_without_a_traceback() -> None:
    async with serving(Settings(db=":memory:", shutdown_timeout=20.0)) as served:
        for method, status in (("head", 501), ("Post", 501), ("get", 501), ("BREW", 405)):
            with capture_logs() as logs:
                async with connected(served.server) as client:
                    await client.request(method, "/health")
                    assert (await client.receive_response()).status == status, method
            assert not [line for line in logs if line["log_level"] == "error"]


async def test_no_body_is_asked_for_before_the_key_is_known() -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 2\r\nExpect: 100-continue\r\n"
    async with serving(Settings(api_key="a-key", db=":memory:", shutdown_timeout=20.0)) as served:
        async with connected(served.server) as client:
            await client.send(head + b"\r\n")
            assert (await client.receive_response()).status == 401
        async with connected(served.server) as client:
            await client.send(head + b"x-api-key: a-key\r\n\r\n")
            assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            await client.send(b"{}")
            assert (await client.receive_response()).status == 400


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
        (b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET path HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://%5B::1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: " + b"a" * 300 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a..b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: [127.0.0.1]evil.com\r\n\r\n", 400),
        (b"POST ?x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345", 400),
        (
            b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
    ],
)
async def test_what_is_no_http_is_answered_with_a_problem(sent: bytes, status: int) -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(sent)
        answer = await client.receive_response()
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-request-id"].startswith("req_")
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert await client.read_to_end() == b""


@pytest.mark.parametrize("target", [b"/", b"http://a/", b"HTTP://A?x", b"//b/", b"/%", b"/%ff", b"/[::1"])
async def test_every_form_of_a_target_is_understood(target: bytes) -> None:
    async with running(make_app(), Settings()) as server, connected(server) as client:
        await client.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        found = (await client.receive_response()).status
        assert found == (200 if target.lower() in (b"/", b"http://a/", b"http://a?x") else 404)


async def test_broken_chunks_end_the_request() -> None:
    async with running(make_app(), Settings()) as server:
        async with connected(server) as client:
            await client.send(b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
            await client.read_to_end()
        await wait_until_closed(server)


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
        assert (await client.receive_response()).body == b"ok"


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
