"""Error responses in the format of the requested path's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from quart import Response, request
from quart_trio import QuartTrio

from greenroom.http.answering.protocols import WireProtocol, answer_errors
from greenroom.http.openai.protocol import OPENAI_PROTOCOL
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.problems import Problem, invalid
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import fetch, running


def members_of_another(problem: Problem, request_id: str | None) -> Mapping[str, Any]:
    return {"type": "error", "error": {"message": problem.detail}, "request_id": request_id}


ANOTHER = WireProtocol(("/v1/messages", "/other/"), lambda services: (), members_of_another, mark="x-another")


def make_app() -> QuartTrio:
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection
    answer_errors(app, (OPENAI_PROTOCOL, ANOTHER))

    @app.before_request
    async def name_request() -> None:
        request.scope["state"]["request_id"] = "req_1"

    @app.get("/v1/<path:_path>")
    async def refuse(_path: str) -> Response:
        raise invalid("`n` is wrong.", "n")

    return app


@pytest.mark.parametrize(
    ("path", "status", "headers", "another"),
    [
        ("/v1/chat", 400, {}, False),
        ("/v1/messages", 400, {}, True),
        ("/v1/messages/count_tokens", 400, {}, True),
        ("/other/path", 404, {}, True),
        ("/nowhere", 404, {}, False),
        ("/v1/models/nobody", 400, {"X_Another": "1"}, True),
        ("/nowhere", 404, {"x_another": "1"}, True),
    ],
)
async def test_the_client_or_else_the_path_decides_the_shape_of_errors(
    path: str, status: int, headers: dict[str, str], another: bool
) -> None:
    async with running(make_app(), Settings()) as server:
        answer = await fetch(server, "GET", path, **headers)
    document = answer.json()
    assert (answer.status, document["status"]) == (status, status)
    assert document["instance"] == "urn:greenroom:request:req_1"
    if another:
        assert (document["type"], document["error"]) == ("error", {"message": document["detail"]})
        assert document["request_id"] == "req_1"
    else:
        assert document["type"].startswith("urn:greenroom:problem:")
        assert set(document["error"]) == {"message", "type", "param", "code"}
