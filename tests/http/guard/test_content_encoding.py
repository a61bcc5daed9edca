"""Compressed bodies: read like uncompressed ones, or refused before they cost anything."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from openai import OpenAI
from quart import request
from quart_trio import QuartTrio

from greenroom.http.guard import request_body
from greenroom.http.guard.byte_account import UNCOUNTED_BYTES
from greenroom.http.guard.content_encoding import MAX_FRAMES, PIECE, BodyDecoder, new_decoder, zstd_library
from greenroom.http.guard.request_body import BODY_BYTES, RequestBodies
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, running, serving

zstd = zstd_library()
CHAT = "/v1/chat/completions"
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstd.compress,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}
BODY = json.dumps({"model": "nobody's", "messages": [{"role": "user", "content": "Hi " * 50}]}).encode()
TEXTS = [b"", b"{}", BODY, b"x" * (PIECE - 1), b"x" * PIECE, b"x" * (PIECE + 1), bytes(range(256)) * 2_000]


def zstd_frame(content: int, *, window_log: int = 20) -> bytes:
    """Return a frame of `content` blanks in run-length blocks, 4 bytes for each 131,072."""
    head = b"\x28\xb5\x2f\xfd" + bytes([0, window_log - 10 << 3])
    whole, rest = divmod(max(content - 1, 0), 131_072)
    last = rest + (content > 0)
    return head + _blanks(131_072) * whole + _blanks(last, last=True)


def _blanks(size: int, *, last: bool = False) -> bytes:
    return (size << 3 | 1 << 1 | last).to_bytes(3, "little") + b" "


def decoder(coding: str) -> BodyDecoder:
    made = new_decoder(coding)
    assert made is not None
    return made


def decoded(coding: str, data: bytes, at_once: int = 1 << 20) -> bytes:
    made = decoder(coding)
    pieces: list[bytes] = []
    for start in range(0, len(data), at_once):
        pieces += made.feed(data[start : start + at_once])
    made.finish()
    assert all(0 < len(piece) <= PIECE for piece in pieces)
    return b"".join(pieces)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_what_was_compressed_comes_back(coding: str, text: bytes) -> None:
    data = CODINGS[coding](text)
    for at_once in (1, 7, len(data)) if len(data) < 5_000 else (1_000, len(data)):
        assert decoded(coding, data, at_once) == text


@pytest.mark.parametrize("coding", ["zstd", "gzip"])
def test_several_frames_are_one_body(coding: str) -> None:
    compress = CODINGS[coding]
    data = compress(b"one ") + compress(b"") + compress(b"two")
    if coding == "zstd":
        data = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + data  # a skippable frame
    for at_once in (1, 11, 1 << 20):
        assert decoded(coding, data, at_once) == b"one two"


def with_a_dictionary() -> bytes:
    samples = [b"a sample of text number %d, as there are many" % number for number in range(2_000)]
    data: bytes = zstd.compress(b"a sample of text number 5", zstd_dict=zstd.train_dict(samples, 2_000))
    return data


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "nothing": ("zstd", b"", "ends before"),
    "no zstd": ("zstd", BODY, "cannot be decompressed"),
    "no gzip": ("gzip", BODY, "cannot be decompressed"),
    "no zlib": ("deflate", b"\xff" * 20, "cannot be decompressed"),
    "gzip for zstd": ("zstd", gzip.compress(BODY), "cannot be decompressed"),
    "truncated zstd": ("zstd", zstd.compress(BODY)[:-1], "ends before"),
    "truncated head": ("zstd", zstd.compress(BODY)[:5], "ends before"),
    "truncated gzip": ("gzip", gzip.compress(BODY)[:-1], "ends before"),
    "changed gzip": ("gzip", gzip.compress(BODY)[:-8] + b"\0" * 8, "cannot be decompressed"),
    "text behind zstd": ("zstd", zstd.compress(BODY) + b"more of it", "cannot be decompressed"),
    "text behind zlib": ("deflate", zlib.compress(BODY) + b"{}", "cannot be decompressed"),
    "dictionary": ("zstd", with_a_dictionary(), "cannot be decompressed"),
    "window too large": ("zstd", zstd_frame(100, window_log=24), "too much memory"),
    "too many frames": ("zstd", zstd.compress(b"") * (MAX_FRAMES + 1), "frames"),
    "too many members": ("gzip", gzip.compress(b" ") * (MAX_FRAMES + 1), "frames"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_what_cannot_be_decompressed_is_refused(server_without_model: Served, case: str) -> None:
    coding, data, why = BROKEN[case]
    with pytest.raises(ProblemError) as refused:
        decoded(coding, data)
    assert why in refused.value.problem.detail
    if data:
        answer = await fetch(server_without_model.server, "POST", CHAT, data, content_encoding=coding)
        error = answer.json()["error"]
        assert (answer.status, error["code"]) == (400, "invalid_content_encoding")
        assert f"Content-Encoding is {coding}" in error["message"]


@pytest.mark.parametrize("coding", [*CODINGS, "ZSTD", "x-gzip"])
@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages", "/api/chat"])
async def test_a_compressed_body_is_read_in_every_protocol(
    server_without_model: Served, coding: str, path: str
) -> None:
    body = {"model": "nobody's", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    data = json.dumps(body).encode()
    compress = CODINGS[coding.lower().removeprefix("x-")]
    answer = await fetch(server_without_model.server, "POST", path, compress(data), content_encoding=coding)
    plain = await fetch(server_without_model.server, "POST", path, data)
    # The body was read: the server knows that there is no such model.
    assert (answer.status, plain.status) == (404, 404)
    assert answer.headers["content-type"] == plain.headers["content-type"]


async def test_openais_client_sends_what_codex_sends(tiny_model: Callable[..., Path]) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    body = {"model": "qwen3", "input": "one two three", "max_output_tokens": 4, "temperature": 0}
    data = zstd.compress(json.dumps(body).encode())
    headers = {"content-encoding": "zstd", "content-type": "application/json"}

    def post(client: OpenAI, **options: Any) -> Any:
        return client.post("/responses", cast_to=object, **options)

    async with serving(settings) as served:
        compressed = await ask(
            served, lambda client: post(client, content=data, options={"headers": headers})
        )
        plain = await ask(served, lambda client: post(client, body=body))
    texts = [answer["output"][-1]["content"][0]["text"] for answer in (compressed, plain)]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, zstd", "zstd;q=1", "identity, gzip"])
async def test_another_coding_is_refused_with_those_that_are_taken(
    server_without_model: Served, coding: str
) -> None:
    answer = await fetch(server_without_model.server, "POST", CHAT, BODY, content_encoding=coding)
    assert (answer.status, answer.json()["error"]["code"]) == (415, "unsupported_content_encoding")
    assert answer.headers["accept-encoding"] == "zstd, gzip, deflate"
    form = await fetch(
        server_without_model.server,
        "POST",
        "/v1/audio/transcriptions",
        b"--x--",
        content_type="multipart/form-data; boundary=x",
        content_encoding="zstd",
    )
    assert (form.status, form.json()["error"]["code"]) == (415, "unsupported_content_encoding")


async def test_two_headers_are_two_codings(server_without_model: Served) -> None:
    data = gzip.compress(gzip.compress(BODY))
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\ncontent-encoding: gzip\r\ncontent-encoding: gzip\r\n\r\n"
    )
    async with connected(server_without_model.server) as client:
        await client.send(head.encode() + data)
        assert (await client.receive_response()).status == 415


BOMBS = {
    "zstd": zstd_frame(1 << 34),
    "gzip": gzip.compress(b" " * (BODY_BYTES + PIECE)),
    "deflate": zlib.compress(b" " * (BODY_BYTES + PIECE)),
}


@pytest.mark.parametrize("coding", BOMBS)
async def test_a_bomb_is_cut_where_any_body_is(server_without_model: Served, coding: str) -> None:
    assert len(BOMBS[coding]) < MEGABYTE
    path = "/v1/embeddings"
    answer = await fetch(server_without_model.server, "POST", path, BOMBS[coding], content_encoding=coding)
    assert (answer.status, answer.json()["error"]["code"]) == (413, "body_too_large")


NOTHING = {
    "zstd": (b"\x50\x2a\x4d\x18\xff\xff\xff\xff", bytes(PIECE)),  # a skippable frame of 4 GiB
    "gzip": (b"\x1f\x8b\x08\x08" + bytes(6), b"a" * PIECE),  # an endless file name
    "deflate": (b"\x78\x9c", b"\x00\x00\x00\xff\xff" * (PIECE // 5)),  # empty blocks
}
"""First and further bytes of bodies that decompress to nothing."""


@pytest.mark.parametrize("coding", NOTHING)
async def test_what_becomes_nothing_is_no_longer_than_any_body(coding: str) -> None:
    app, bodies = QuartTrio(__name__), RequestBodies(MEGABYTE)

    @app.post("/")
    async def read() -> str:
        return str(await bodies.parse(request, request.scope["state"]["resources"], len))

    begin, more = NOTHING[coding]
    parts = [begin, *[more] * (MEGABYTE // len(more) + 2)]
    app.asgi_http_class = RequestConnection
    async with running(app, Settings()) as server, connected(server) as client:
        await client.send(
            f"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            + b"0\r\n\r\n"
        )
        assert (await client.receive_response()).status == 413


def test_nothing_is_decompressed_that_nobody_takes() -> None:
    made = decoder("zstd")
    pieces = made.feed(BOMBS["zstd"])
    assert [len(next(pieces)) for _ in range(3)] == [PIECE] * 3


async def test_what_a_body_becomes_counts_among_those_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 * UNCOUNTED_BYTES
    monkeypatch.setattr(request_body, "FURTHER_BYTES", 0)
    app, bodies = QuartTrio(__name__), RequestBodies(size)
    app.asgi_http_class = RequestConnection
    taken = trio.Event()
    done = trio.Event()

    @app.post("/")
    async def hold() -> str:
        resources = request.scope["state"]["resources"]
        length = await bodies.parse(request, resources, len)
        taken.set()
        await done.wait()
        return str(length)

    body = b'["%b"]' % (b"a" * (size - 10))
    async with running(app, Settings()) as server, trio.open_nursery() as nursery:
        nursery.start_soon(fetch_compressed, server, body)
        await taken.wait()
        refused = await fetch_compressed(server, body)
        done.set()
    assert refused.status == 500  # the bare application has no error handler
    # Alone, the same body is accepted.
    async with running(app, Settings()) as server:
        assert (await fetch_compressed(server, body)).body == b"1"


async def fetch_compressed(server: Any, body: bytes) -> Any:
    return await fetch(server, "POST", "/", zstd.compress(body), content_encoding="zstd")


async def test_a_slow_sender_has_no_more_time_than_for_any_body() -> None:
    app, bodies = QuartTrio(__name__), RequestBodies()
    app.asgi_http_class = RequestConnection
    app.config["BODY_TIMEOUT"] = 0.2

    @app.post("/")
    async def read() -> str:
        return str(await bodies.parse(request, request.scope["state"]["resources"], len))

    data = zstd.compress(BODY)
    async with running(app, Settings()) as server, connected(server) as client:
        await client.send(
            f"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-encoding: zstd\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            + data[:-3]
        )
        assert (await client.receive_response()).status == 408


async def test_a_length_that_is_not_the_bodys_is_found(server_without_model: Served) -> None:
    data = zstd.compress(BODY)
    async with connected(server_without_model.server) as client:
        await client.send(head_of(len(data) - 4) + data)
        answer = await client.receive_response()
        assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_content_encoding")
    # The server does not wait for the rest from a client that has left, and answers the next one.
    async with connected(server_without_model.server) as client:
        await client.send(head_of(len(data) + 4) + data)
        await client.stream.send_eof()
        assert await client.read_to_end() == b""
    answer = await fetch(server_without_model.server, "POST", CHAT, data, content_encoding="zstd")
    assert answer.status == 404


def head_of(length: int) -> bytes:
    return (
        f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-encoding: zstd\r\ncontent-length: {length}\r\n\r\n"
    ).encode()
