"""Malformed HTTP gets a 4xx or a clean end of the connection; nothing is smuggled or leaked."""

from __future__ import annotations

import random
import re

import pytest
import structlog.testing
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.connection_app import make_app, wait_until_closed
from greenroom.tests.support.servers.http_servers import connected, fetch, running

POST = b"POST /length HTTP/1.1\r\nHost: a\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
SMUGGLED = b"GET /stream/1/3 HTTP/1.1\r\nHost: a\r\n\r\n"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")

REFUSED = {
    "chunked and a length": POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "two lengths in one": POST + b"Content-Length: 5, 6\r\n\r\nabcdef",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nabcde",
    "a length of 30 digits": POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "a null in a value": GET + b"x: a\0b\r\n\r\n",
    "a bare CR in a value": GET + b"x: a\rb\r\n\r\n",
    "a space in a name": GET + b"x y: 1\r\n\r\n",
    "an empty line before it": b"\r\n" + GET + b"\r\n",
    "no name": GET + b": 1\r\n\r\n",
    "a head of 200 kB": GET + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    "300 headers": GET + b"x: y\r\n" * 300 + b"\r\n",
    "20,000 headers": GET + b"x: y\r\n" * 20_000 + b"\r\n",
    "a target of 200 kB": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.0": b"GET / HTTP/3.0\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "a broken chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a negative chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
    "a chunk's size of 30 digits": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n",
    "a chunk longer than its size": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "an extension of 200 kB": POST
    + b"Transfer-Encoding: chunked\r\n\r\n3;"
    + b"e" * 200_000
    + b"\r\nabc\r\n",
    "trailers of 200 kB": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_malformed_requests_are_refused_and_end_their_connection(sent: bytes) -> None:
    with structlog.testing.capture_logs() as events:
        async with running(make_app(), Settings(idle_connection=600)) as server:
            async with connected(server, 30) as client:
                await client.send(sent + SMUGGLED)
                statuses = STATUS.findall(await client.read_to_end())
                assert len(statuses) <= 1
                assert all(400 <= int(status) < 500 or status in (b"501", b"505") for status in statuses)
            await wait_until_closed(server)
            assert (await fetch(server, "GET", "/")).body == b"ok"
    assert [event for event in events if event["log_level"] in ("error", "critical")] == []


ACCEPTED = {
    "bare line feeds": (b"GET / HTTP/1.1\nHost: a\n\n", b"ok"),
    "an extension of a chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n", b"3"),
    "trailers": (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n", b"3"),
    "the same length twice": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", b"3"),
    "an unknown upgrade": (GET + b"Upgrade: foo\r\nConnection: upgrade\r\n\r\n", b"ok"),
    "a body of a GET": (GET + b"Content-Length: 3\r\n\r\nabc", b"ok"),
}


@pytest.mark.parametrize(("sent", "body"), ACCEPTED.values(), ids=ACCEPTED)
async def test_what_is_unusual_but_clear_is_answered(sent: bytes, body: bytes) -> None:
    async with running(make_app(), Settings(idle_connection=600)) as server, connected(server, 30) as client:
        await client.send(sent)
        assert (await client.receive_response()).body == body


async def test_random_bytes_leave_nothing_behind() -> None:
    source = random.Random(5)
    pieces = [*REFUSED.values(), *(sent for sent, _ in ACCEPTED.values()), SMUGGLED]
    with structlog.testing.capture_logs() as events:
        async with running(make_app(), Settings(idle_connection=600)) as server:
            for _ in range(150):
                sent = bytearray(b"".join(source.choices(pieces, k=2))[:4000])
                for _ in range(source.randrange(4)):
                    sent[source.randrange(len(sent))] = source.randrange(256)
                async with connected(server, 30) as client:
                    try:
                        await client.send(bytes(sent))
                    except trio.BrokenResourceError:
                        continue
                    with trio.move_on_after(source.choice((0, 0.01))):
                        await client.read_to_end()
            await wait_until_closed(server)
            assert (await fetch(server, "GET", "/")).body == b"ok"
    assert [event for event in events if event["log_level"] in ("error", "critical")] == []
