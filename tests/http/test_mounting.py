"""Greenroom mounted in another application, as in notes/mounting_example.py, on a real socket."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx2
import hypercorn.trio
import pytest
import structlog
import trio
from hypercorn.config import Config
from openai import OpenAI
from quart_trio import QuartTrio

from greenroom.api import create_app, open_system
from greenroom.http.asgi import make_app
from greenroom.notes.mounting_example import serve
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.guarded_forms import GUARDED, REFUSED, refusals
from greenroom.tests.support.servers.server_processes import run_greenroom


async def test_clients_reach_both_applications_and_the_same_model(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    [address] = await nursery.start(serve, Settings(shutdown_timeout=60.0), "127.0.0.1:0")
    async with httpx2.AsyncClient(base_url=address, timeout=600) as http:
        hello = await http.get("/hello/Ada")
        assert (hello.status_code, hello.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert hello.text
        assert (await http.get("/v1/models")).status_code == 404
        assert (await http.get("/ai/livez")).status_code == 200
        refused = await http.post("/ai/v1/chat/completions", json={"model": "default"})
        assert refused.json()["error"]["param"] == "messages"
        foreign = await http.get("/ai/v1/models", headers={"host": "evil.example"})
        assert foreign.status_code == 403
        preflight = await http.options("/ai/v1/models", headers={"origin": address})
        assert (preflight.status_code, "content-length" in preflight.headers) == (204, False)
        # The addresses in the page are relative to that of its folder.
        bare = await http.get("/ai", headers={"accept": "text/html"})
        assert (bare.status_code, bare.headers["location"]) == (308, "ai/")
        page = await http.get("/ai", headers={"accept": "text/html"}, follow_redirects=True)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    await trio.to_thread.run_sync(ask_as_openai_does, f"{address}/ai/v1")
    assert "Error in ASGI Framework" not in caplog.text
    nursery.cancel_scope.cancel("the test is over")


async def test_the_application_answers_its_own_test_client() -> None:
    settings = Settings(shutdown_timeout=60.0)
    async with open_system(settings) as system:
        client = create_app(system, settings).test_client()
        listed = await client.get("/v1/models")
        assert [model["id"] for model in (await listed.get_json())["data"]] == ["greenroom-demo"]
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 5}
        answer = await client.post("/v1/chat/completions", json=body)
        assert (answer.status_code, (await answer.get_json())["usage"]["completion_tokens"]) == (200, 5)
        refused = await client.post("/v1/chat/completions", json={"model": "default"})
        assert (await refused.get_json())["error"]["param"] == "messages"


PATHS = [
    (None, "/llm/v1/models", 200),
    (None, "/llm", 308),
    (None, "/v1/models", 404),
    (None, "/llmx/v1/models", 404),
    (("ollama",), "/llm/api/tags", 200),
    (("ollama",), "/llm/v1/models", 404),
    (("rerank", "anthropic"), "/llm/v1/models", 200),
    (("anthropic",), "/llm/api/tags", 404),
]


async def test_only_paths_under_the_prefix_and_of_the_protocols_exist() -> None:
    async with open_system(Settings(shutdown_timeout=60.0)) as system:
        for protocols, path, status in PATHS:
            client = create_app(system, Settings(), protocols=protocols, prefix="/llm").test_client()
            assert (await client.get(path)).status_code == status, (protocols, path)
        app: Any = create_app(system, Settings(), prefix="/llm")
        socket = RawAnswer()
        await app({"type": "websocket", "path": "/llm/v1/responses"}, socket.receive, socket.send)
        assert socket.sent == [{"type": "websocket.close", "code": 1012}]
        client = app.test_client()
        assert (await client.get("/llm/v1/models", headers={"host": "a..b"})).status_code == 403
        missed = await (await client.get("/llm/v1/modles")).get_json()
        assert "`/llm/v1/models`" in missed["detail"]
        written = await (await client.get("/llm/openapi.json")).get_json()
        assert written["servers"] == [{"url": "/llm"}]
        for names in (("opnai",), ()):
            with pytest.raises(ValueError, match="name one or more of openai, responses, anthropic"):
                create_app(system, Settings(), protocols=names)
        for prefix in ("llm", "/llm/", "/"):
            with pytest.raises(ValueError, match=f"prefix = '{prefix}'"):
                create_app(system, Settings(), prefix=prefix)


async def test_other_machines_need_a_key_of_a_mounted_application_too(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "kept.sqlite3"), shutdown_timeout=60.0)

    async def status(app: QuartTrio, own: str, path: str = "/v1/models", **headers: str) -> int:
        scope = {"server": (own, 80)}
        return (await app.test_client().get(path, scope_base=scope, headers=headers)).status_code

    async with open_system(settings) as system:
        app = create_app(system, settings)
        assert await status(app, "192.0.2.1") == 401
        assert await status(app, "192.0.2.1", "/livez") == 200
        assert await status(app, "127.0.0.1") == 200
        assert await status(create_app(system, attrs.evolve(settings, insecure=True)), "192.0.2.1") == 200
        add = partial(run_greenroom, "keys", "add", "ada", "--db", settings.db or "")
        key = (await trio.to_thread.run_sync(add)).stdout.split()[-1]
        with trio.fail_after(300):
            while await status(app, "127.0.0.1") != 401:
                pass
        assert await status(app, "192.0.2.1", authorization=f"Bearer {key}") == 200


async def test_any_server_under_trio_serves_the_application_and_owns_its_lifespan(
    nursery: trio.Nursery,
) -> None:
    app, ends, config = make_app(Settings(shutdown_timeout=60.0), prefix="/llm"), trio.Event(), Config()
    config.bind = ["127.0.0.1:0"]
    early = RawAnswer()
    await app({"type": "http"}, early.receive, early.send)
    assert (early.sent[0]["status"], b"not_ready" in early.sent[1]["body"]) == (503, True)
    serve_app = partial(hypercorn.trio.serve, app, config, shutdown_trigger=ends.wait)
    with structlog.testing.capture_logs() as logs:
        [address] = await nursery.start(serve_app)
        async with httpx2.AsyncClient(base_url=address, timeout=600) as http:
            assert (await http.get("/llm/v1/models")).status_code == 200
        ends.set()
    [told] = [line for line in logs if line["event"] == "served by another server"]
    assert len(told["it_must"]) == 5
    failed = RawAnswer({"type": "lifespan.startup"})
    await make_app(Settings(models=("/nowhere",)))({"type": "lifespan"}, failed.receive, failed.send)
    assert failed.sent[0]["type"] == "lifespan.startup.failed"
    assert "/nowhere" in failed.sent[0]["message"]


async def test_a_refused_upload_is_answered_once_its_client_has_sent_it() -> None:
    settings = attrs.evolve(GUARDED, max_body_bytes=4 * MEGABYTE)
    head = (b"host", b"localhost"), (b"content-type", b"application/json")
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": head}
    rest = {"scheme": "http", "query_string": b"", "http_version": "1.1", "server": ("127.0.0.1", 80)}
    parts = [{"type": "http.request", "body": b" " * 65_536, "more_body": left > 0} for left in range(32)]
    sent: list[tuple[Any, int]] = []

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return parts.pop() if parts else await trio.sleep_forever()

    async def send(message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        sent.append((message.get("status"), len(parts)))

    async with open_system(settings) as system:
        app: Any = create_app(system, settings)
        await app({**scope, **rest}, receive, send)
    assert (sent[0][0], sent[-1][1]) == (401, 0)  # nothing of the body is left at the end


class RawAnswer:
    """Both ends of a raw ASGI call."""

    def __init__(self, *received: dict[str, Any]) -> None:
        self._received, self.sent = list(received), list[dict[str, Any]]()

    async def receive(self) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return self._received.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)


@pytest.mark.parametrize("name", ["mounted", "alone"])
async def test_limits_and_guards_hold_in_other_servers(name: str, nursery: trio.Nursery) -> None:
    if name == "mounted":
        [address] = await nursery.start(serve, GUARDED, "127.0.0.1:0")
        address += "/ai"
    else:
        config = Config()
        config.bind = ["127.0.0.1:0"]
        [address] = await nursery.start(partial(hypercorn.trio.serve, make_app(GUARDED), config))
    assert await trio.to_thread.run_sync(refusals, address) == REFUSED
    nursery.cancel_scope.cancel("the test is over")


@pytest.mark.deep
@pytest.mark.parametrize("loop", [[], ["asyncio"]])
def test_the_program_around_keeps_its_signals_logs_limits_and_variables(loop: list[str]) -> None:
    program = [sys.executable, "-m", "greenroom.tests.support.servers.host_state", *loop]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.returncode) == ("[]\n[]\n[]\n", 0), done.stderr


def ask_as_openai_does(base_url: str) -> None:
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        assert client.models.list().data[0].id == "greenroom-demo"
        stream = client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hello!"}], stream=True, max_tokens=20
        )
        text = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert len(text) > 1
    assert "".join(text)
