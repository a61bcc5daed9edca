"""Behaviour of all routes: request ids, errors, probes, and a log line for each request."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import structlog
import structlog.testing

from greenroom.http.answering.protocols import ABSENT
from greenroom.tests.support.engines.watched_engines import until
from greenroom.tests.support.servers.http_servers import Served, connected, fetch

CHAT = "/v1/chat/completions"


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
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("PATCH", CHAT, 405),
    ],
)
async def test_unknown_paths_and_methods_are_problems_too(
    server_without_model: Served, method: str, path: str, status: int
) -> None:
    answer = await fetch(server_without_model.server, method, path)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"].startswith("req_")
    document = answer.json()
    assert document["status"] == status
    assert {"type", "title", "detail", "instance", "error"} <= set(document)
    assert ("allow" in answer.headers) is (status == 405)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/responses/", "/v1/responses"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/api/tags", "/api/tags"),
        ("/v1/" + "x" * 5_000, None),
    ],
)
async def test_an_unknown_path_names_the_one_that_was_meant(
    server_without_model: Served, path: str, meant: str | None
) -> None:
    detail = (await fetch(server_without_model.server, "GET", path)).json()["detail"]
    hint = f" Did you mean `{meant}`?" if meant else ""
    assert detail == f"This path does not exist here.{hint}"


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/stats", "`/api/ps` the loaded models"),
        ("/docs", "it is OpenAI's under `/v1`"),
        ("/ui/", "run `greenroom chat`"),
        ("/v1/moderations", "Texts are not moderated here."),
        ("/v1/images/generations", "No images are drawn here."),
        ("/v1/files/file_1/content", "send them in the messages"),
        ("/v2/chat", "`/v1/chat/completions`"),
    ],
)
async def test_a_path_of_other_servers_names_what_there_is_instead(
    server_without_model: Served, path: str, instead: str
) -> None:
    problem = (await fetch(server_without_model.server, "GET", path)).json()
    assert problem["status"] == 404
    assert problem["detail"].startswith("This path does not exist here. ")
    assert instead in problem["detail"]
    assert "Did you mean" not in problem["detail"]


async def test_no_path_that_is_served_is_called_absent(server_without_model: Served) -> None:
    for path in ABSENT:
        assert (await fetch(server_without_model.server, "POST", path)).status == 404


async def test_a_trailing_slash_and_options_are_harmless(server_without_model: Served) -> None:
    assert (await fetch(server_without_model.server, "GET", "/v1/models/")).status == 200
    answer = await fetch(server_without_model.server, "OPTIONS", CHAT)
    assert answer.status == 200
    assert "POST" in answer.headers["allow"]


async def test_probes_are_answered(server_without_model: Served) -> None:
    assert (await fetch(server_without_model.server, "GET", "/health")).json() == {
        "status": "ok",
        "pid": os.getpid(),
    }
    assert (await fetch(server_without_model.server, "GET", "/livez")).status == 200
    assert (await fetch(server_without_model.server, "GET", "/readyz")).status == 200
    assert b"Greenroom" in (await fetch(server_without_model.server, "GET", "/")).body
    async with connected(server_without_model.server) as client:
        await client.request("HEAD", "/", connection="close")
        head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert body == b""


async def test_every_answer_has_an_id_of_its_own(server_without_model: Served) -> None:
    answers = [
        await fetch(server_without_model.server, "GET", path, x_request_id="mine")
        for path in ("/", "/v1/models", "/nowhere")
    ]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 3
    assert "mine" not in ids
    assert all(name in answer.headers for answer in answers for name in ("date", "x-content-type-options"))


async def test_a_fault_of_ours_is_a_500_without_a_traceback(
    server_without_model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("greenroom.http.answering.route_services.RouteServices.read_request", break_down)
    with structlog.testing.capture_logs() as lines:
        answer = await fetch(server_without_model.server, "POST", CHAT, {})
    assert answer.status == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    crashed = next(line for line in lines if line["event"] == "request crashed")
    assert crashed["request_id"] == answer.headers["x-request-id"]
    assert isinstance(crashed["exc_info"], ZeroDivisionError)


async def test_a_client_that_leaves_with_its_answer_is_answered(server_without_model: Served) -> None:
    with structlog.testing.capture_logs() as lines:
        for _ in range(20):
            async with connected(server_without_model.server) as client:
                await client.request("GET", "/v1/models")
                await client.receive_response()
        await until(lambda: sum(line.get("path") == "/v1/models" for line in lines) == 20)
    told = {(line["event"], line["status"]) for line in lines if line.get("path") == "/v1/models"}
    assert told == {("request answered", 200)}


async def test_each_request_is_one_line_in_the_log(server_without_model: Served) -> None:
    with structlog.testing.capture_logs() as lines:
        answer = await fetch(server_without_model.server, "GET", "/v1/models?secret=1")
        await until(lambda: any(line["event"] == "request answered" for line in lines))
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
