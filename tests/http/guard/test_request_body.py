"""Request bodies: most refusals come before they are read or decoded, and their total size is limited."""

from __future__ import annotations

import itertools
import json
import math
import re
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from quart import request
from quart_trio import QuartTrio

from greenroom.http.guard import request_body
from greenroom.http.guard.byte_account import UNCOUNTED_BYTES
from greenroom.http.guard.json_counter import JsonCounter
from greenroom.http.guard.request_body import (
    BODY_BYTES,
    BODY_BYTES_WITH_FILES,
    RequestBodies,
    decode_counted_json,
    decode_json,
)
from greenroom.http.media.media_reader import MAX_TOTAL_BYTES
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, running, serving

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content_type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"content_type": ""}, 415, "unsupported_media_type"),
        ({"content_type": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
        ({"content_encoding": "gzip"}, 400, "invalid_content_encoding"),
        ({"content_encoding": "br"}, 415, "unsupported_content_encoding"),
        ({"host": "evil.example"}, 403, "host_not_allowed"),
        ({"content_type": "application/json; charset=utf-8"}, 400, "missing_required_parameter"),
        ({"content_encoding": "identity"}, 400, "missing_required_parameter"),
    ],
)
async def test_bodies_are_taken_as_plain_json_only(
    server_without_model: Served, headers: dict[str, str], status: int, code: str
) -> None:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    head = {"host": "localhost", "content-type": "application/json", "content-length": "2", **fields}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    async with connected(server_without_model.server) as client:
        await client.send(f"POST {CHAT} HTTP/1.1\r\n{lines}\r\n{{}}".encode())
        answer = await client.receive_response()
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b'{"model": "m", "messages": [}', 400),
        (b'{"model": "\xff"}', 400),
        (b'{"model": "m", "temperature": NaN}', 400),
        (b'{"a":' * 70 + b"1" + b"}" * 70, 413),
        (b"[" * 100_000, 413),
        (b'"' + b"x" * 2 * MEGABYTE + b'"', 413),
        (b"[]", 400),
        (b"1", 400),
    ],
)
async def test_hostile_bodies_are_refused_with_a_problem(
    server_without_model: Served, data: bytes, status: int
) -> None:
    for path in (CHAT, "/v1/completions"):
        answer = await fetch(server_without_model.server, "POST", path, data)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_chunked_body_is_limited_too(server_without_model: Served) -> None:
    async with connected(server_without_model.server) as client, trio.open_nursery() as nursery:
        await client.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )

        async def upload() -> None:
            with suppress(trio.BrokenResourceError):  # a server waits a while for what nobody will read
                for _ in range(48):
                    await client.send(b"10000\r\n" + b" " * 65536 + b"\r\n")

        nursery.start_soon(upload)
        answer = await client.receive_response()
        assert (answer.status, answer.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_large_body_is_parsed_on_another_thread() -> None:
    app, bodies = QuartTrio(__name__), RequestBodies(MEGABYTE)
    app.asgi_http_class = RequestConnection

    @app.post("/")
    async def thread() -> str:
        resources = request.scope["state"]["resources"]
        return str(await bodies.parse(request, resources, lambda _: threading.get_ident()))

    async with running(app, Settings()) as server:
        for body, is_large in (
            ({}, False),
            ({"text": "a" * 60_000}, False),
            ({"text": "a" * 70_000}, True),
            ({"items": [[]] * 300}, True),
        ):
            answer = await fetch(server, "POST", "/", body)
            assert (int(answer.body) != threading.get_ident()) == is_large


async def test_large_images_and_emoji_are_taken_together() -> None:
    app, bodies = QuartTrio(__name__), RequestBodies()
    app.config["MAX_CONTENT_LENGTH"] = bodies.largest
    app.asgi_http_class = RequestConnection
    image = "data:image/png;base64," + "iVBORw0KGgo=" * (1 << 20)

    @app.post("/")
    async def texts() -> list[int]:
        resources = request.scope["state"]["resources"]
        return await bodies.parse(request, resources, lambda body: [len(text) for text in body], files=True)

    async with running(app, Settings()) as server:
        body = json.dumps([image, "What is this? \U0001f600", image, image], ensure_ascii=False).encode()
        answer = await fetch(server, "POST", "/", body)
    assert answer.json() == [len(image), 15, len(image), len(image)]


async def test_bodies_that_would_be_too_much_together_are_refused_until_others_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 2 * UNCOUNTED_BYTES
    monkeypatch.setattr(request_body, "FURTHER_BYTES", size)
    large = json.dumps({"text": "a" * (size - 20)}).encode()

    async def code(served: Served, body: bytes) -> str:
        answer = await fetch(served.server, "POST", CHAT, body)
        if answer.status == 503:
            assert answer.headers["retry-after"] == "1"
        return str(answer.json()["error"]["code"])

    async with serving(Settings(max_body_bytes=size)) as served, trio.open_nursery() as nursery:
        left = trio.Event()

        async def upload_all_but_the_end(*, task_status: trio.TaskStatus[None]) -> None:
            async with connected(served.server) as client:
                head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                await client.send(f"{head}content-length: {len(large)}\r\n\r\n".encode() + large[:-10])
                task_status.started()
                await left.wait()
                await client.send(large[-10:])
                assert (await client.receive_response()).status in (400, 503)

        for _ in range(4):
            await nursery.start(upload_all_but_the_end)
        while await code(served, large) != "too_many_bodies":
            await trio.lowlevel.checkpoint()
        assert await code(served, b"{}") == "missing_required_parameter"
        left.set()
        while await code(served, large) != "missing_required_parameter":
            await trio.lowlevel.checkpoint()


@pytest.mark.deep
async def test_bodies_with_files_may_be_larger_than_others(tmp_path: Path) -> None:
    with_files = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/tokenize")
    plain = ("/v1/completions", "/detokenize", "/api/show")
    between = b" " * BODY_BYTES + b"[]"
    async with serving(Settings(db=str(tmp_path / "kept.db"))) as served:
        for path in (*plain, *with_files):
            answer = await fetch(served.server, "POST", path, between)
            code = "body_too_large" if path in plain else "invalid_type"
            assert code in answer.body.decode(), path
        for path in with_files:
            async with connected(served.server) as client:
                head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                await client.send(f"{head}content-length: {BODY_BYTES_WITH_FILES + 1}\r\n\r\n".encode())
                assert (await client.receive_response()).status == 413


@pytest.mark.deep
async def test_fifty_megabytes_of_files_fit_into_a_body(tmp_path: Path) -> None:
    image = "data:image/png;base64," + "AAAA" * (MAX_TOTAL_BYTES // 3 // 3)
    content = [{"type": "image_url", "image_url": {"url": image}}] * 3
    body = {"model": "none", "messages": [{"role": "user", "content": content}]}
    async with serving(Settings(db=str(tmp_path / "kept.db"))) as served:
        answer = await fetch(served.server, "POST", CHAT, body)
    assert (answer.status, answer.json()["error"]["code"]) == (404, "model_not_found")


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"a": NaN}', 400),
        (b'{"a": -Infinity}', 400),
        (b'{"a": 1e999}', 400),
        (b'{"a": ' + b"9" * 310 + b"}", 400),
        (b'{"a": -' + b"9" * 100_000 + b"}", 400),
        (b"\xef\xbb\xbf{}", 400),
        ('{"a": 1}'.encode("utf-16"), 400),
        (nested(65), 413),
        (nested(100_000), 413),
        (b"[" * 400_000, 413),
        (b'{"a": [' + b"1," * 10 + b"}", 400),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 413),
    ],
)
def test_hostile_json_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(ProblemError) as refused:
        decode_json(data)
    assert refused.value.problem.status == status


def test_odd_json_is_read() -> None:
    assert decode_json(nested(64))
    assert decode_json(b'{"a": 1, "a": 2}') == {"a": 2}
    assert decode_json(b'{"a": "' + b"[{" * 1000 + b'"}') == {"a": "[{" * 1000}
    assert decode_json(b'{"a": ' + b"9" * 309 + b"}") == {"a": int("9" * 309)}
    assert decode_json(rb'{"\ud800": ["a\uDFFF", "\ud83d\ude00"]}') == {"\ufffd": ["a\ufffd", "\U0001f600"]}
    assert decode_json(b'{"a": -' + b"9" * 309 + b"}") == {"a": -int("9" * 309)}
    assert decode_json(b"[9223372036854775808, -9223372036854775809]") == [2**63, -(2**63) - 1]
    assert decode_json(b"[0.1, 1e-400, -0.0, 1E5]") == [0.1, 0.0, 0.0, 100_000.0]
    assert math.copysign(1, decode_json(b"-0.0")) == -1


def test_half_of_a_surrogate_pair_becomes_a_replacement_character_wherever_it_stands() -> None:
    pieces = [rb"\ud83d", rb"\uDE00", rb"\uDBFF", rb"\\", rb"\\ud83d", b"a", rb"\n", "\U0001f600".encode()]
    for several in itertools.product(pieces, repeat=4):
        data = b'"' + b"".join(several) + b'"'
        assert decode_json(data) == re.sub("[\ud800-\udfff]", "\ufffd", json.loads(data)), data


@pytest.mark.parametrize("size", range(65_525, 65_550))
def test_surrogates_are_paired_wherever_a_large_body_is_cut(size: int) -> None:
    text = "a" * (size % 2) + "\\" * (size // 2)
    data = json.dumps([text + "\U0001f600\ud83d", "\udead"])
    assert decode_json(data.encode()) == [text + "\U0001f600\ufffd", "\ufffd"]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b'{"a": [1,2}', "byte 10"),
        (b'{"a" 1}', "byte 5"),
        (b"{} {}", "trailing"),
        (b"{", "truncated"),
        (b'"\xff"', "UTF-8"),
        (b"[1e999]", "out of range"),
        (b"[" + b"9" * 310 + b"]", "more than 309 digits"),
        (rb'"\ud83d\x"', "escape"),
    ],
)
def test_what_is_wrong_is_told_briefly(data: bytes, named: str) -> None:
    with pytest.raises(ProblemError) as refused:
        decode_json(data)
    assert named in refused.value.problem.detail
    assert len(refused.value.problem.detail) < 200


@pytest.mark.parametrize(("letter", "factor"), [("a", 1.1), ("\u4e2d", 3.1)])
def test_a_large_body_with_an_emoji_takes_little_beside_its_strings(letter: str, factor: float) -> None:
    size = 8 << 20
    text = letter * (size // len(letter.encode()))
    body = bytearray(json.dumps(["\U0001f600", text], ensure_ascii=False).encode())
    del text
    counter = JsonCounter()
    counter.feed(bytes(body))
    tracemalloc.start()
    try:
        value = decode_counted_json(body, counter)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not body
    assert value[0] == "\U0001f600"
    assert kept < 1.1 * size
    assert peak < factor * size
