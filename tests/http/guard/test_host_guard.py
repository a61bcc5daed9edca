"""Which requests are answered, and how the others are refused."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
import structlog.testing
import trio
from werkzeug.datastructures import Headers

from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.host_guard import HostGuard
from greenroom.schemas.settings import MEGABYTE, Settings
from greenroom.tests.support.http_servers import Served, connected, fetch, serving

CHAT = "/v1/chat/completions"
PAGE = "https://chat.example"


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server that never has to load its model."""
    settings = Settings(
        allowed_hosts=("greenroom.example",),
        allowed_origins=(PAGE,),
        max_body_bytes=2 * MEGABYTE,
        shutdown_timeout=60.0,
    )
    async with serving(settings) as served:
        yield served


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "localhost.:8000",
        "app.localhost",
        "127.0.0.1",
        "127.0.0.1:8000",
        "[::1]",
        "[::1]:8000",
        "192.168.1.7:8000",
        "[fe80::1]:80",
        "greenroom.example",
        "Greenroom.Example:443",
        "",
    ],
)
def test_addresses_and_known_names_are_answered(host: str) -> None:
    guard = HostGuard(Settings(allowed_hosts=("greenroom.example",)))
    assert guard.find_problem(Headers({"Host": host})) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil-localhost",
        "greenroom.example.evil",
        "[evil.example]",
        "localhost@evil.example",
        "0x7f000001.example",
        "127.0.0.1:80:80",
    ],
)
def test_borrowed_names_are_not(host: str) -> None:
    refusal = HostGuard(Settings()).find_problem(Headers({"Host": host}))
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://chat.example",
        "https://chat.example.evil",
        "http://localhost:3000",
    ],
)
async def test_pages_of_other_origins_are_turned_away(served: Served, origin: str) -> None:
    for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("OPTIONS", CHAT)):
        answer = await fetch(served.server, method, path, {} if method == "POST" else None, origin=origin)
        assert (answer.status, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers


async def test_an_allowed_page_may_ask_first_and_then_read(served: Served) -> None:
    asking = {
        "origin": PAGE,
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization,content-type,x-stainless-os",
        "access_control_request_private_network": "true",
    }
    preflight = await fetch(served.server, "OPTIONS", CHAT, **asking)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == asking["access_control_request_headers"]
    assert preflight.headers["access-control-allow-private-network"] == "true"
    assert preflight.headers["vary"] == "Origin"
    for answer in (
        await fetch(served.server, "GET", "/v1/models", origin=PAGE),
        await fetch(served.server, "POST", CHAT, b"{", origin=PAGE),
    ):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in (await fetch(served.server, "GET", "/v1/models")).headers


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
    served: Served, headers: dict[str, str], status: int, code: str
) -> None:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    head = {"host": "localhost", "content-type": "application/json", "content-length": "2", **fields}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    async with connected(served.server) as client:
        await client.send(f"POST {CHAT} HTTP/1.1\r\n{lines}\r\n{{}}".encode())
        answer = await client.answer()
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
async def test_hostile_bodies_are_refused_with_a_problem(served: Served, data: bytes, status: int) -> None:
    for path in (CHAT, "/v1/completions"):
        answer = await fetch(served.server, "POST", path, data)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_chunked_body_is_limited_too(served: Served) -> None:
    async with connected(served.server) as client, trio.open_nursery() as nursery:
        await client.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )

        async def upload() -> None:
            for _ in range(48):
                await client.send(b"10000\r\n" + b" " * 65536 + b"\r\n")

        nursery.start_soon(upload)
        answer = await client.answer()
        assert (answer.status, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/chat", 404),
        ("GET", "/v1/../v1/models", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/models/%00", 404),
        ("GET", "/static/app.py", 404),
        ("GET", "/%ff", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("PATCH", CHAT, 405),
    ],
)
async def test_unknown_paths_and_methods_are_problems_too(
    served: Served, method: str, path: str, status: int
) -> None:
    answer = await fetch(served.server, method, path)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"].startswith("req_")
    document = answer.json()
    assert document["status"] == status
    assert {"type", "title", "detail", "instance", "error"} <= set(document)
    assert ("allow" in answer.headers) is (status == 405)


async def test_a_trailing_slash_and_options_are_harmless(served: Served) -> None:
    assert (await fetch(served.server, "GET", "/v1/models/")).status == 200
    answer = await fetch(served.server, "OPTIONS", CHAT)
    assert answer.status == 200
    assert "POST" in answer.headers["allow"]


async def test_probes_are_answered(served: Served) -> None:
    assert (await fetch(served.server, "GET", "/health")).json() == {"status": "ok", "pid": os.getpid()}
    assert (await fetch(served.server, "GET", "/livez")).status == 200
    assert (await fetch(served.server, "GET", "/readyz")).status == 200
    assert b"Greenroom" in (await fetch(served.server, "GET", "/")).body
    async with connected(served.server) as client:
        await client.request("HEAD", "/", connection="close")
        head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert body == b""


async def test_every_answer_has_an_id_of_its_own(served: Served) -> None:
    answers = [
        await fetch(served.server, "GET", path, x_request_id="mine")
        for path in ("/", "/v1/models", "/nowhere")
    ]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 3
    assert "mine" not in ids
    assert all(name in answer.headers for answer in answers for name in ("date", "x-content-type-options"))


async def test_a_fault_of_ours_is_a_500_without_a_traceback(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("greenroom.http.openai.chat_routes.read_request", break_down)
    with structlog.testing.capture_logs() as lines:
        answer = await fetch(served.server, "POST", CHAT, {})
    assert answer.status == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    crashed = next(line for line in lines if line["event"] == "request crashed")
    assert crashed["request_id"] == answer.headers["x-request-id"]
    assert isinstance(crashed["exc_info"], ZeroDivisionError)


async def test_each_request_is_one_line_in_the_log(served: Served) -> None:
    with structlog.testing.capture_logs() as lines:
        answer = await fetch(served.server, "GET", "/v1/models?secret=1")
    [line] = [line for line in lines if line["event"] == "request answered"]
    assert line.pop("ms") >= 0
    assert line == {
        "event": "request answered",
        "log_level": "info",
        "actor": "http",
        "method": "GET",
        "path": "/v1/models",
        "status": 200,
        "request_id": answer.headers["x-request-id"],
    }
    assert json.dumps(line)


def test_clients_are_told_apart_by_key_and_address() -> None:
    def name(address: str | None, **headers: str) -> str:
        return client_name(Headers({key.replace("_", "-"): value for key, value in headers.items()}), address)

    bearer, other = {"authorization": "Bearer sk-one"}, {"authorization": "bearer sk-two"}
    names = [name("10.0.0.1"), name("10.0.0.2"), name("10.0.0.1", **bearer), name("10.0.0.1", **other)]
    assert len({*names, name("10.0.0.2", **bearer)}) == 5
    assert name("10.0.0.1", x_api_key="sk-one") == names[2]
    assert name("10.0.0.1", authorization="Basic sk-one") == names[0]
    assert name(None) == ""
    assert "sk-one" not in names[2]
