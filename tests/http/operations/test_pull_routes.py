"""Fetches, search and deletion for operators, against a hub on a local socket."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog
import trio

from greenroom.actors.core.ref import ask_actor
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import DescribePool, ModelStatus, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.operations.test_admin_server import events_until, following, next_event
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.models.tiny_adapters import as_peft, make_adapter
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub

NAME = "org/chat"
WEIGHTS = "model.safetensors"
PULL = "/admin/pull"


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def mark_of(cache: Path, model: str) -> Path:
    return cache / f"models--{model.replace('/', '--')}" / ".greenroom-unprobed"


def snapshots(cache: Path) -> list[Path]:
    return list(cache.glob("models--*/snapshots/*"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def hub(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with open_hub({NAME: files_of(tiny_model("llama"))}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


@pytest.fixture
def settings() -> Settings:
    return Settings(shutdown_timeout=20.0)


def events(response: RawResponse) -> list[dict[str, Any]]:
    assert response.status == 200, response.body
    assert response.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in response.body.decode().split("\n\n") if line]


async def pull(served: Served, model: str = NAME, **body: Any) -> list[dict[str, Any]]:
    body = {"model": model, "probe": False, **body}
    return events(await fetch(served.server, "POST", PULL, body))


async def post(served: Served, path: str, body: Any = None) -> RawResponse:
    return await fetch(served.server, "POST", path, {} if body is None else body)


def chat(model: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Hello"}
    return {"model": model, "messages": [message], "max_tokens": 3, **fields}


async def test_a_pulled_model_is_told_served_listed_and_deleted(
    cache: Path, hub: Hub, settings: Settings
) -> None:
    async with serving(settings) as served:
        told = await pull(served)
        assert (told[0]["state"], told[-1]["state"]) == ("running", "completed")
        size = told[-1]["bytes"]
        assert (told[-1]["received"], told[-1]["model"], told[-1]["problem"]) == (size, NAME, None)
        [listed] = (await fetch(served.server, "GET", "/admin/pulls")).json()["pulls"]
        assert (listed["id"], listed["state"]) == (told[0]["id"], "completed")
        asked = len(hub.requests)
        assert (await post(served, "/v1/chat/completions", chat(NAME))).status == 200
        assert len(hub.requests) == asked
        deleted = (await post(served, "/admin/models/delete", {"model": NAME})).json()
        assert deleted["model"] == NAME
        assert deleted["freed_bytes"] >= size
        assert not snapshots(cache)
        gone = await post(served, "/v1/chat/completions", chat(NAME))
        assert (gone.status, gone.json()["error"]["code"]) == (404, "model_not_found")
        assert (await post(served, "/admin/models/delete", {"model": NAME})).status == 404


async def test_a_pull_is_cancelled_at_once_and_resumed_by_the_next(
    cache: Path, hub: Hub, settings: Settings
) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    async with serving(settings) as served:
        told: list[dict[str, Any]] = []

        async def watch() -> None:
            told.extend(await pull(served))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            assert await trio.to_thread.run_sync(hub.held.wait, 120)
            [running] = (await fetch(served.server, "GET", "/admin/pulls")).json()["pulls"]
            assert running["state"] == "running"
            in_use = await post(served, "/admin/models/delete", {"model": NAME})
            assert (in_use.status, in_use.json()["error"]["code"]) == (409, "model_in_use")
            cancelled = await post(served, f"{PULL}/{running['id']}/cancel")
            assert (cancelled.status, cancelled.json()["state"]) == (200, "cancelled")
        assert told[-1]["state"] == "cancelled"
        again = await post(served, f"{PULL}/{running['id']}/cancel")
        assert (again.status, (await post(served, f"{PULL}/nothing/cancel")).status) == (409, 404)
        assert (await pull(served))[-1]["state"] == "completed"
        assert hub.asked(WEIGHTS)[-1].startswith("bytes=")


async def test_a_pull_does_not_hold_up_the_end_of_the_server(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    told: list[dict[str, Any]] = []
    async with serving(Settings(shutdown_timeout=600.0)) as served, trio.open_nursery() as nursery:

        async def watch() -> None:
            told.extend(await pull(served))

        nursery.start_soon(watch)
        assert await trio.to_thread.run_sync(hub.held.wait, 120)
        served.server.drain.set()
        await served.system.drain()
    assert told[-1]["state"] == "failed"
    assert "shut" in told[-1]["problem"]


async def test_fetches_are_told_among_the_events(cache: Path, hub: Hub, settings: Settings) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    began = time.monotonic()
    async with serving(settings) as served, following(served) as client, trio.open_nursery() as nursery:
        nursery.start_soon(pull, served)
        name, started = await next_event(client)
        assert (name, started["stage"], started["model"]) == ("download", "started", NAME)
        await trio.to_thread.run_sync(hub.held.wait)

        async def has_arrived() -> bool:
            [running] = (await fetch(served.server, "GET", "/admin/pulls")).json()["pulls"]
            return bool(running["received"])

        await eventually(has_arrived)
        async with following(served) as late:
            assert (await next_event(late))[1]["stage"] == "progress"
        await post(served, f"{PULL}/{started['id']}/cancel")
        assert (await events_until(client, "cancelled"))[-1][1]["received"] > 0
        await pull(served)
        told = [event for _, event in await events_until(client, "completed")]
        assert (told[0]["stage"], told[-1]["received"]) == ("started", told[-1]["bytes"])
        progress = [event for event in told if event["stage"] == "progress"]
        assert len(progress) <= time.monotonic() - began, "at most one a second"
        await pull(served, "org/nothing")
        [failed] = [event for _, event in await events_until(client, "failed") if event["stage"] == "failed"]
        assert "has no model of that name" in failed["problem"]


async def test_a_model_that_did_not_fit_is_probed_after_its_first_load(
    cache: Path, hub: Hub, settings: Settings, tiny_encoder: TinyEncoder, tiny_model: TinyModel
) -> None:
    hub.models["org/bert"] = files_of(tiny_encoder("bert"))
    mark = mark_of(cache, "org/bert")
    folder = str(tiny_model("llama"))
    full = attrs.evolve(settings, models=(folder,), max_loaded_models=1, db=str(cache.parent / "database"))
    async with serving(full) as served:
        await post(served, "/admin/models/load", {"model": "llama"})
        assert (await pull(served, "org/bert", probe=True))[-1]["state"] == "completed"
        await eventually(trio.Path(mark).exists)
    assert mark.exists()
    with structlog.testing.capture_logs() as logs:
        async with serving(full) as served:
            embedding = {"model": "org/bert", "input": "Hello"}
            assert (await post(served, "/v1/embeddings", embedding)).status == 200
            await until_probed(served, "org/bert")
            assert not mark.exists()
    assert "model not probed" not in [line["event"] for line in logs]


async def test_a_model_pulled_without_a_probe_gets_none(
    cache: Path, hub: Hub, settings: Settings, tiny_encoder: TinyEncoder
) -> None:
    hub.models["org/bert"] = files_of(tiny_encoder("bert"))
    async with serving(settings) as served:
        await pull(served, "org/bert")
        assert (await post(served, "/v1/embeddings", {"model": "org/bert", "input": "Hello"})).status == 200
        assert not mark_of(cache, "org/bert").exists()
        listed = (await fetch(served.server, "GET", "/v1/models")).json()["data"]
        assert [each["capabilities"]["probed"] for each in listed if each["id"] == "org/bert"] == [False]


@pytest.mark.deep
async def test_a_waiting_request_and_the_pool_hear_of_a_download(
    cache: Path, hub: Hub, settings: Settings
) -> None:
    weights = len(hub.models[NAME][WEIGHTS])
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(weights // 2, "hold")
    body = chat(NAME, stream=True, stream_options={"include_status": True})
    requesting = attrs.evolve(settings, allow_downloads=True)
    async with serving(requesting, status_timeout=0.1) as served, connected(served.server) as client:
        await client.request("POST", "/v1/chat/completions", json.dumps(body).encode())
        news = json.loads(b"{" + (await _news(client, b'"downloading"')))
        assert news["download_bytes"] > weights
        assert news["model"] == NAME
        assert await trio.to_thread.run_sync(hub.held.wait, 120)
        pool = await ask_actor(served.system.refs.pool, DescribePool(), PoolStatus)
        [status] = [each for each in pool.models if each.key.model == NAME]
        assert status.state is ModelState.DOWNLOADING
        assert status.download is not None
        [running] = (await fetch(served.server, "GET", "/admin/pulls")).json()["pulls"]
        await post(served, f"{PULL}/{running['id']}/cancel")
        assert b"was cancelled by the operator" in await client.read_until(b"[DONE]")


async def test_a_download_that_a_request_began_ends_with_its_last_client(
    cache: Path, hub: Hub, settings: Settings
) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    async with serving(attrs.evolve(settings, allow_downloads=True)) as served:
        body = json.dumps(chat(NAME)).encode()
        async with connected(served.server) as second:
            async with connected(served.server) as first:
                await first.request("POST", "/v1/chat/completions", body)
                assert await trio.to_thread.run_sync(hub.held.wait, 120)
                await second.request("POST", "/v1/chat/completions", body)
                while (await _status(served)).queue < 2:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            while (await _status(served)).queue > 1:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert await _pulls(served) == ["running"]
        while "running" in await _pulls(served):  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert await _pulls(served) == ["cancelled"]
        answer = await post(served, "/v1/chat/completions", chat(NAME))
        while answer.status == 409:
            assert answer.json()["error"]["code"] == "download_abandoned"
            answer = await post(served, "/v1/chat/completions", chat(NAME))
        assert answer.status == 200
        assert await _pulls(served) == ["cancelled", "completed"]


async def test_a_download_that_a_count_of_tokens_began_ends_with_its_client(
    cache: Path, hub: Hub, settings: Settings
) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    async with serving(attrs.evolve(settings, allow_downloads=True)) as served:
        async with connected(served.server) as client:
            body = json.dumps({"model": NAME, "prompt": "Hello"}).encode()
            await client.request("POST", "/tokenize", body)
            assert await trio.to_thread.run_sync(hub.held.wait, 120)
            assert await _pulls(served) == ["running"]
        while "running" in await _pulls(served):  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert await _pulls(served) == ["cancelled"]


async def _status(served: Served) -> ModelStatus:
    pool = await ask_actor(served.system.refs.pool, DescribePool(), PoolStatus)
    return next(each for each in pool.models if each.key.model == NAME)


async def _pulls(served: Served) -> list[str]:
    return [each["state"] for each in (await fetch(served.server, "GET", "/admin/pulls")).json()["pulls"]]


async def test_only_admins_and_keys_with_that_right_bring_models(
    cache: Path, hub: Hub, settings: Settings
) -> None:
    async with serving(attrs.evolve(settings, allow_downloads=True, db=":memory:")) as served:

        async def ask(path: str, body: dict[str, Any], key: str = "") -> RawResponse:
            return await fetch(served.server, "POST", path, body, x_api_key=key)

        boss = (await ask("/admin/keys", {"name": "boss", "admin": True})).json()["secret"]
        guest = (await ask("/admin/keys", {"name": "guest"}, boss)).json()["secret"]
        friend = (await ask("/admin/keys", {"name": "friend", "downloads": True}, boss)).json()["secret"]
        for path in ("/v1/chat/completions", "/tokenize"):
            refused = await ask(path, chat(NAME), guest)
            assert (refused.status, refused.json()["error"]["code"]) == (404, "model_not_found")
            assert "may not download" in refused.json()["error"]["message"]
        assert hub.requests == []
        assert (await ask("/v1/chat/completions", chat(NAME), friend)).status == 200
        assert (await ask("/v1/chat/completions", chat(NAME), guest)).status == 200
        unknown = await ask("/v1/chat/completions", chat("org/unknown"), boss)
        assert (unknown.status, "may not" in unknown.body.decode()) == (404, False)


async def _news(client: Any, mark: bytes) -> bytes:
    """Return the members of the first news with a mark."""
    while True:
        event = await client.read_until(b"\n\n")
        if mark in event:
            return bytes(event.partition(b'"queue_status":{')[2].partition(b"}")[0] + b"}")


async def test_refusals_name_what_is_wrong(
    cache: Path, hub: Hub, settings: Settings, tiny_model: TinyModel
) -> None:
    folder = tiny_model("qwen3")
    async with serving(attrs.evolve(settings, models=(str(folder),))) as served:
        for body in ({"model": "../x"}, {}, {"model": 3}, {"model": "a/b@../c"}):
            refused = await post(served, PULL, body)
            assert (refused.status, refused.json()["error"]["param"]) == (400, "model")
        failed = (await pull(served, "org/nothing"))[-1]
        assert failed["state"] == "failed"
        assert "has no model of that name" in failed["problem"]
        outside = await post(served, "/admin/models/delete", {"model": "qwen3"})
        assert (outside.status, outside.json()["error"]["code"]) == (403, "not_deletable")
        other_name = await post(served, "/admin/models/delete", {"model": "default"})
        assert other_name.status == 400
        assert (folder / "config.json").exists()
        for query in ("", "?q=", "?q=a&limit=0", "?q=a&limit=x", f"?q={'a' * 300}"):
            assert (await fetch(served.server, "GET", f"/admin/search{query}")).status == 400
        found = (await fetch(served.server, "GET", "/admin/search?q=chat")).json()["models"]
        assert [(each["id"], each["local"]) for each in found] == [(NAME, False)]


async def test_a_model_that_requests_use_is_not_deleted(cache: Path, hub: Hub, settings: Settings) -> None:
    async with serving(settings) as served:
        await pull(served)
        async with connected(served.server) as client:
            body = chat(NAME, stream=True, max_tokens=100_000, ignore_eos=True)
            await client.request("POST", "/v1/chat/completions", json.dumps(body).encode())
            await client.read_until(b"delta")
            refused = await post(served, "/admin/models/delete", {"model": NAME})
        assert (refused.status, refused.json()["error"]["code"]) == (409, "model_in_use")
        assert snapshots(cache)


async def test_a_pulled_model_is_probed_if_it_fits(
    cache: Path, hub: Hub, settings: Settings, tiny_encoder: TinyEncoder
) -> None:
    hub.models["org/bert"] = files_of(tiny_encoder("bert"))
    async with serving(settings) as served:
        with structlog.testing.capture_logs() as logs:
            assert (await pull(served, "org/bert", probe=True))[-1]["state"] == "completed"
            await until_probed(served, "org/bert")
        assert "model not probed" not in [line["event"] for line in logs]


@pytest.mark.parametrize("moment", ["at once", "loading", pytest.param("ready", marks=pytest.mark.deep)])
async def test_the_probe_of_a_pulled_model_gives_way_to_its_deletion(
    cache: Path, hub: Hub, settings: Settings, moment: str
) -> None:
    async with serving(settings) as served:
        assert (await pull(served, probe=True))[-1]["state"] == "completed"
        if moment != "at once":
            await eventually(partial(_has_come_to, served, moment))
        deleted = await post(served, "/admin/models/delete", {"model": NAME})
        assert (deleted.status, snapshots(cache)) == (200, []), deleted.body
        assert (await pull(served))[-1]["state"] == "completed"
        assert (await post(served, "/v1/chat/completions", chat(NAME))).status == 200


async def _has_come_to(served: Served, state: str) -> bool:
    listed = (await fetch(served.server, "GET", "/admin/models")).json()["models"]
    return any(each["id"] == NAME and each["state"] in (state, "ready") for each in listed)


async def until_probed(served: Served, model: str) -> None:
    with trio.fail_after(300):
        while True:
            listed = (await fetch(served.server, "GET", "/v1/models")).json()["data"]
            if next(each for each in listed if each["id"] == model)["capabilities"]["probed"]:
                break
            await trio.sleep(0.1)


async def test_an_adapter_of_the_hub_is_fetched_with_its_base(
    cache: Path, hub: Hub, settings: Settings, tiny_model: TinyModel, tmp_path: Path
) -> None:
    law = make_adapter(tiny_model("llama"), tmp_path / "law", named=NAME)
    hub.models["org/law"] = files_of(law)
    hub.models["org/sql"] = files_of(as_peft(law, tmp_path / "sql", NAME))
    hub.models["org/self"] = files_of(as_peft(law, tmp_path / "self", "org/self"))
    hub.models["org/none"] = {"adapter_config.json": b"{}", "adapter_model.bin": b""}
    async with serving(settings) as served:
        loaded = await post(served, "/admin/adapters", {"name": "org/sql"})
        assert loaded.json() == {"id": "org/sql", "base_model": NAME}
        assert sorted(path.parents[1].name for path in snapshots(cache)) == [
            "models--org--chat",
            "models--org--sql",
        ]
        assert (await pull(served, "org/law", probe=True))[-1]["state"] == "completed"
        answers = []
        for name in (NAME, "org/law", f"{NAME}:sql"):
            answer = await post(served, "/v1/chat/completions", chat(name, max_tokens=4, temperature=0))
            answers.append(answer.json()["choices"])
        assert answers[0] != answers[1] == answers[2]
        assert (await pull(served, "org/self"))[-1]["state"] == "completed"
        failed = {name: (await post(served, "/admin/adapters", {"name": name})) for name in _NO_ADAPTERS}
        assert {name: (each.status, each.json()["error"]["code"]) for name, each in failed.items()} == (
            _NO_ADAPTERS
        )
        deleted = await post(served, "/admin/models/delete", {"model": "org/law"})
        assert deleted.status == 200, deleted.body
        assert (await post(served, "/v1/chat/completions", chat("org/law"))).status == 404
        assert (await post(served, "/v1/chat/completions", chat("org/sql", max_tokens=1))).status == 200


_NO_ADAPTERS = {
    "org/self": (503, "load_failed"),
    "org/none": (503, "load_failed"),
    NAME: (404, "adapter_not_found"),
    "org/nobody": (404, "model_not_found"),
    "/etc": (404, "model_not_found"),
}
"""Names under which there is no adapter to load, with the status and the code of the refusal."""


async def test_only_programs_of_this_machine_fetch_and_delete(server_without_model: Served) -> None:
    for method, path in (
        ("POST", PULL),
        ("GET", "/admin/pulls"),
        ("POST", f"{PULL}/a/cancel"),
        ("GET", "/admin/search"),
        ("POST", "/admin/models/delete"),
    ):
        refused = await fetch(server_without_model.server, method, path, {}, x_forwarded_for="192.0.2.1")
        assert (refused.status, refused.json()["error"]["code"]) == (403, "loopback_only")
