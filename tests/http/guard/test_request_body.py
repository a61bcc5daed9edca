"""JSON that anybody may have sent, and bodies that are not even read."""

from __future__ import annotations

import pytest
import trio

from greenroom.http.guard.request_body import MAX_CONTAINERS, decode_json
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings import MEGABYTE
from greenroom.tests.support.http_servers import Served, connected, fetch

CHAT = "/v1/chat/completions"


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
        (b'{"a": ' + b"9" * 5000 + b"}", 400),
        (nested(65), 413),
        (nested(100_000), 413),
        (b"[" * 400_000, 413),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 413),
        (b"[" + b"[]," * MAX_CONTAINERS + b"[]]", 413),
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
    assert decode_json(b'{"a": ' + b"9" * 400 + b"}") == {"a": int("9" * 400)}
    assert decode_json(rb'{"\ud800": ["a\uDFFF", "\ud83d\ude00"]}') == {"\ufffd": ["a\ufffd", "\U0001f600"]}


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"content_type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"content_type": ""}, 415, "unsupported_media_type"),
        ({"content_type": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
        ({"content_encoding": "gzip"}, 415, "unsupported_content_encoding"),
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
            for _ in range(48):
                await client.send(b"10000\r\n" + b" " * 65536 + b"\r\n")

        nursery.start_soon(upload)
        answer = await client.receive_response()
        assert (answer.status, answer.json()["error"]["code"]) == (413, "body_too_large")
