"""Models loaded, unloaded, pinned and planned by an operator of a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import LoadSize, load_size
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawClient, Served, connected, fetch, serving

MODELS = "/admin/models"
CHAT = "/v1/chat/completions"


@pytest.fixture
async def served(tiny_model: TinyModel) -> AsyncIterator[Served]:
    """Run a server with two models, one of which fits into memory at a time."""
    folders = str(tiny_model("qwen3")), str(tiny_model("llama"))
    async with serving(Settings(models=folders, max_loaded_models=1, shutdown_timeout=60.0)) as served:
        yield served


async def post(served: Served, verb: str, body: Any, status: int = 200) -> Any:
    answer = await fetch(served.server, "POST", f"{MODELS}/{verb}", body)
    assert answer.status == status, answer.body
    return answer.json()


async def one(served: Served, model: str) -> dict[str, Any]:
    models = (await fetch(served.server, "GET", MODELS)).json()["models"]
    [found] = [each for each in models if each["id"] == model]
    return dict(found)


@asynccontextmanager
async def endless_chat(served: Served, model: str) -> AsyncIterator[tuple[RawClient, str]]:
    """Stream a chat that ends only with its connection; yield that and the request's id."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    async with connected(served.server) as client:
        await client.request(
            "POST", CHAT, json.dumps({**body, "max_tokens": 20_000, "ignore_eos": True}).encode()
        )
        head = (await client.read_until(b"\r\n\r\n")).decode().lower()
        yield client, head.split("x-request-id: ")[1].split()[0]


async def test_the_log_says_why_a_model_leaves_and_for_whom(served: Served) -> None:
    with capture_logs() as lines:
        for model in ("qwen3", "llama"):
            await post(served, "load", {"model": model})
        await post(served, "unload", {"model": "llama"})
        body = {
            "model": "llama",
            "prompt": "a",
            "keep_alive": 0,
            "stream": False,
            "options": {"num_predict": 1},
        }
        assert (await fetch(served.server, "POST", "/api/generate", body)).status == 200

        async def is_gone() -> bool:
            return bool((await one(served, "llama"))["state"] == "idle")

        await eventually(is_gone)
    left = [line for line in lines if line["event"] == "state changed" and line["state"] == "unloading"]
    assert [(line["model"], line["reason"], line.get("for")) for line in left] == [
        ("qwen3", "evicted", "llama"),
        ("llama", "unloaded by an operator", None),
        ("llama", "ttl", None),
    ]


async def test_a_model_is_loaded_and_unloaded(served: Served) -> None:
    loaded = await post(served, "load", {"model": "default"})
    assert (loaded["id"], loaded["seconds"] > 0) == ("qwen3", True)
    shown = await one(served, "qwen3")
    assert (shown["state"], shown["running"], shown["pinned"]) == ("ready", 0, False)
    assert shown["status"] == "Ready"
    assert shown["bytes"] > 0
    unloaded = await post(served, "unload", {"model": "qwen3"})
    assert unloaded["freed_bytes"] > 0
    gone = await one(served, "qwen3")
    assert (gone["state"], gone["status"]) == ("idle", "Idle")
    assert (await post(served, "unload", {"model": "qwen3", "mode": "now"}))["freed_bytes"] == 0


@pytest.mark.deep
async def test_the_rows_of_a_running_batch_are_shown_and_now_fails_them(served: Served) -> None:
    async with endless_chat(served, "qwen3") as (client, ident):

        async def decoding() -> bool:
            rows = (await one(served, "qwen3"))["rows"]
            return [(row["request_id"], row["stage"]) for row in rows] == [(ident, "decode")]

        await eventually(decoding)
        [row] = (await one(served, "qwen3"))["rows"]
        assert row["prompt_tokens"] > 0
        assert row["generated_tokens"] > 0
        assert (await one(served, "qwen3"))["leases"] == 1
        [request] = (await fetch(served.server, "GET", "/admin/requests")).json()["requests"]
        assert (request["id"], request["model"], request["state"]) == (ident, "qwen3", "running")
        assert request["rows"][0]["index"] == 0
        unloaded = await post(served, "unload", {"model": "qwen3", "mode": "now"})
        assert unloaded["freed_bytes"] > 0
        assert b'"code":"model_unloaded"' in await client.read_until(b"data: [DONE]\n\n")

    async def is_given_back() -> bool:
        return bool((await one(served, "qwen3"))["leases"] == 0)

    await eventually(is_given_back)
    after = await one(served, "qwen3")
    assert (after["rows"], after["last_error_at"]) == ([], None)
    # What the steps took is kept when their model is gone.
    assert after["prefill_seconds"] > 0
    assert after["decode_seconds"] > 0


async def test_a_drain_waits_for_the_answer(served: Served) -> None:
    async with trio.open_nursery() as nursery, endless_chat(served, "qwen3"):
        nursery.start_soon(post, served, "unload", {"model": "qwen3", "mode": "drain"})

        async def leaves() -> bool:
            plan = await post(served, "plan", {"model": "qwen3"})
            return bool(plan["outcome"] == "waits")

        await eventually(leaves)
        left = await one(served, "qwen3")
        assert (left["running"], left["status"]) == (1, "Ready")
        # The hang-up ends the answer, and with it the wait.
    assert (await one(served, "qwen3"))["state"] == "idle"


async def test_a_plan_names_what_would_be_evicted_and_evicts_nothing(served: Served) -> None:
    first = await post(served, "plan", {"model": "default"})
    assert (first["id"], first["outcome"], first["unload"]) == ("qwen3", "loads", [])
    assert first["required_bytes"] > 0
    await post(served, "load", {"model": "qwen3"})
    assert (await post(served, "plan", {"model": "qwen3"}))["outcome"] == "ready"
    other = await post(served, "plan", {"model": "llama"})
    assert (other["outcome"], other["unload"], other["pause"]) == ("evicts", ["qwen3"], [])
    assert other["limit_bytes"] > 0
    async with endless_chat(served, "qwen3"):
        assert (await post(served, "plan", {"model": "llama"}))["outcome"] == "waits"
    assert (await one(served, "qwen3"))["state"] == "ready"
    await post(served, "load", {"model": "llama"})
    assert (await one(served, "qwen3"))["state"] == "idle"


async def test_a_pinned_model_stays_until_it_is_unpinned(served: Served) -> None:
    await post(served, "load", {"model": "qwen3"})
    assert await post(served, "pin", {"model": "default"}) == {"id": "qwen3", "pinned": True}
    assert (await one(served, "qwen3"))["pinned"] is True
    planned = await post(served, "plan", {"model": "llama"})
    assert (planned["outcome"], "llama" in planned["reason"]) == ("refused", True)
    assert (await post(served, "load", {"model": "llama"}, 507))["error"]["code"] == "insufficient_memory"
    assert await post(served, "pin", {"model": "qwen3", "pinned": False}) == {"id": "qwen3", "pinned": False}
    await post(served, "load", {"model": "llama"})
    # The operator's own wish to unload is not hindered by a pin.
    await post(served, "pin", {"model": "llama"})
    assert (await post(served, "unload", {"model": "llama"}))["freed_bytes"] > 0


@pytest.mark.parametrize("verb", ["load", "unload", "pin", "plan", "probe"])
async def test_a_wrong_body_is_a_400_that_names_the_field_and_an_unknown_model_a_404(
    server_without_model: Served, verb: str
) -> None:
    served = server_without_model
    for body, field in (({}, "model"), ({"model": 7}, "model"), ({"model": " "}, "model"), ([], None)):
        assert (await post(served, verb, body, 400))["error"]["param"] == field
    assert (await post(served, verb, {"model": "no/such"}, 404))["error"]["code"] == "model_not_found"
    wrong: dict[str, dict[str, Any]] = {
        "unload": {"mode": "soon"},
        "pin": {"pinned": "yes"},
        "probe": {"max_tokens": 0},
    }
    for field, value in wrong.get(verb, {}).items():
        refused = await post(served, verb, {"model": "default", field: value}, 400)
        assert refused["error"]["param"] == field
        assert field in refused["detail"]


@pytest.mark.parametrize(("beyond", "status"), [(-1, 507), (0, 200)])
async def test_plans_and_lists_judge_as_the_pool_does_and_refuse_nobody_for_an_estimate(
    tiny_model: Callable[..., Path], beyond: int, status: int
) -> None:
    folder, small = tiny_model("qwen3", num_hidden_layers=2, intermediate_size=12_288), tiny_model("llama")
    size, beside = (load_size(each, detect(each), Settings()) for each in (folder, small))
    settings = Settings(
        models=(str(folder), str(small)), memory_bytes=size.least + beyond, shutdown_timeout=60
    )
    request = {"model": folder.name, "prompt": "Hello", "max_tokens": 1}
    async with serving(settings) as served:
        await agree(served, request, size, status)
    pinned = (("llama", ModelSettings(pinned=True)),)
    room = size.least + beside.total + beyond
    async with serving(attrs.evolve(settings, model_settings=pinned, memory_bytes=room)) as served:
        await post(served, "load", {"model": "llama"})
        await agree(served, request, size, status, fits=True)


async def agree(
    served: Served, request: dict[str, Any], size: LoadSize, status: int, fits: bool | None = None
) -> None:
    listed = (await fetch(served.server, "GET", "/v1/models")).json()["data"][0]
    plan = await post(served, "plan", {"model": request["model"]})
    for told in (listed, plan):
        assert told["least_bytes"] == size.least
        assert size.least < told["required_bytes"] <= size.total
    assert listed["fits"] is (status == 200 if fits is None else fits)
    assert plan["outcome"] == ("loads" if status == 200 else "refused")
    answer = await fetch(served.server, "POST", "/v1/completions", request)
    assert answer.status == status, answer.body
    if status == 200:
        assert (await post(served, "plan", {"model": request["model"]}))["outcome"] == "ready"
