"""Greenroom mounted in another application, as in notes/mounting_example.py, on a real socket."""

from __future__ import annotations

import httpx2
import pytest
import trio
from openai import OpenAI

from greenroom.api import create_app, open_system
from greenroom.notes.mounting_example import serve
from greenroom.schemas.settings.settings import Settings


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
        client = create_app(system.refs, settings).test_client()
        listed = await client.get("/v1/models")
        assert [model["id"] for model in (await listed.get_json())["data"]] == ["greenroom-demo"]
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 5}
        answer = await client.post("/v1/chat/completions", json=body)
        assert (answer.status_code, (await answer.get_json())["usage"]["completion_tokens"]) == (200, 5)
        refused = await client.post("/v1/chat/completions", json={"model": "default"})
        assert (await refused.get_json())["error"]["param"] == "messages"


def ask_as_openai_does(base_url: str) -> None:
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        assert client.models.list().data[0].id == "greenroom-demo"
        stream = client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hello!"}], stream=True, max_tokens=20
        )
        text = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert len(list(filter(None, text))) > 1
