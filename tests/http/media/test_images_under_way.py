"""Images being encoded while their client leaves, their model is unloaded, or the server stops."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.vision_adapters import png
from greenroom.tests.support.engines.watched_engines import WatchedEngine, WatchedEngines, until, writes
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving

PATH = "/v1/chat/completions"
TEXT: dict[str, Any] = {"model": "llama", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}


def about_an_image(seed: int, **fields: Any) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(png(600, 600, seed)).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is this?"}]
    messages = [{"role": "user", "content": content}]
    return {"model": "qwen2_vl", "max_tokens": 8, "temperature": 0, "messages": messages, **fields}


def said(answer: RawResponse) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json()["choices"][0]["message"]["content"])


@asynccontextmanager
async def stopped_in_the_image(engines: WatchedEngines) -> AsyncIterator[WatchedEngine]:
    """Pause the engine after a step that encodes part of an image, before the answer begins."""
    engine = engines.engine
    assert engine is not None
    begun = len(engine.steps)
    engine.go_on.clear()
    try:
        await until(lambda: len(engine.steps) > begun and engine.stands.is_set())
        assert not writes(engine.steps[begun:])
        yield engine
    finally:
        engine.go_on.set()


@pytest.fixture
def settings(tiny_vision_model: TinyVisionModel, tiny_model: TinyModel) -> Settings:
    models = (str(tiny_vision_model("qwen2_vl")), str(tiny_model("llama")))
    return Settings(models=models, max_loaded_models=1, shutdown_timeout=60.0)


@pytest.mark.deep
async def test_whoever_goes_on_waiting_gets_the_answer(settings: Settings) -> None:
    engines = WatchedEngines(settings)
    answers = dict[str, str]()
    async with serving(settings, engines=engines) as served:

        async def ask(name: str, body: dict[str, Any]) -> None:
            answers[name] = said(await fetch(served.server, "POST", PATH, body))

        await ask("undisturbed", about_an_image(1))
        await ask("elsewhere", TEXT)  # unloads the vision model with its image features
        await ask("another", about_an_image(2))
        await _leave_while_another_waits(served, engines, ask)
        assert answers["who stays"] == answers["undisturbed"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "evicted", about_an_image(3))
            async with stopped_in_the_image(engines) as engine:
                nursery.start_soon(ask, "who wants the place", TEXT)
        assert engines.engine is not engine
        await ask("again", about_an_image(2))
        assert answers["again"] == answers["another"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "when it stops", about_an_image(1))
            async with stopped_in_the_image(engines):
                served.server.drain.set()
        with trio.fail_after(300):
            await served.server.stopped.wait()
    assert answers["when it stops"] == answers["undisturbed"]


async def _leave_while_another_waits(served: Served, engines: WatchedEngines, ask: Any) -> None:
    loop, body = served.server.loop, json.dumps(about_an_image(1, stream=True)).encode()
    async with trio.open_nursery() as nursery, connected(served.server) as client:
        nursery.start_soon(client.request, "POST", PATH, body)
        async with stopped_in_the_image(engines):
            nursery.start_soon(ask, "who stays", about_an_image(1))
            await until(lambda: loop.connections == 2)
            await client.stream.aclose()
            await until(lambda: loop.connections == 1)


@pytest.mark.deep
async def test_a_system_ends_in_the_middle_of_an_image(settings: Settings) -> None:
    engines = WatchedEngines(settings)
    with trio.fail_after(300):
        async with serving(settings, engines=engines) as served, trio.open_nursery() as nursery:
            said(await fetch(served.server, "POST", PATH, about_an_image(2)))
            nursery.start_soon(fetch, served.server, "POST", PATH, about_an_image(1))
            async with stopped_in_the_image(engines):
                nursery.cancel_scope.cancel()
