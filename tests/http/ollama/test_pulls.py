"""Ollama's `pull` and `delete` with its own SDK, against a hub on a local socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from ollama import Client, ResponseError

from greenroom.engine.catalog.hub.snapshot import RepositoryLock
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawResponse, connected, fetch, serving
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub

NAME = "org/chat"
WEIGHTS = "model.safetensors"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def hub(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tiny_model("llama")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with open_hub({NAME: files}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


async def test_the_sdk_pulls_lists_and_deletes(cache: Path, hub: Hub) -> None:
    def work(address: str) -> None:
        with Client(host=address, timeout=300) as client:
            told = list(client.pull(f"hf.co/{NAME}:latest", stream=True))
            assert (told[0].status, told[-1].status) == ("pulling manifest", "success")
            assert told[-2].total == told[-2].completed
            assert NAME in [model.model for model in client.list().models]
            assert client.pull(NAME).status == "success"
            client.delete(NAME)
            assert NAME not in [model.model for model in client.list().models]
            with pytest.raises(ResponseError, match="no files of a model") as refused:
                client.delete(NAME)
            assert refused.value.status_code == 404
            with pytest.raises(ResponseError, match="name one as OWNER/NAME"):
                client.pull("llama3.2")

    settings = Settings(memory_bytes=1 << 20, shutdown_timeout=20.0)  # no room for a probe
    async with serving(settings) as served:
        await trio.to_thread.run_sync(work, served.server.address)


async def test_a_cancelled_pull_says_so_in_both_forms(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    said = "The download of 'org/chat' was cancelled by the operator."
    async with serving(Settings(shutdown_timeout=20.0)) as served, connected(served.server) as follower:
        whole: list[RawResponse] = []

        async def pull() -> None:
            whole.append(await fetch(served.server, "POST", "/api/pull", {"model": NAME, "stream": False}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.to_thread.run_sync(hub.held.wait)
            await follower.request("POST", "/api/pull", json.dumps({"model": NAME}).encode())
            await follower.read_until(b"pulling")
            [running] = (await fetch(served.server, "GET", "/admin/pulls")).json()["pulls"]
            await fetch(served.server, "POST", f"/admin/pull/{running['id']}/cancel")
        await follower.read_until(json.dumps({"error": said}, separators=(",", ":")).encode())
        assert [(answer.status, answer.json()["error"]) for answer in whole] == [(503, said)]


async def test_a_model_is_not_fetched_while_it_is_deleted_and_the_other_way_round(
    cache: Path, hub: Hub
) -> None:
    settings = Settings(memory_bytes=1 << 20, shutdown_timeout=20.0)  # no room for a probe
    async with serving(settings) as served:
        body = {"model": NAME, "stream": False}
        assert (await fetch(served.server, "POST", "/api/pull", body)).status == 200
        deleting = RepositoryLock(NAME, cache)
        with deleting:
            deleting.delete()  # as another process does
            for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete")):
                refused = await fetch(served.server, method, path, body)
                said = "'org/chat' is being deleted: try again when that has ended."
                assert (refused.status, refused.json()["error"]) == (409, said)
        fetching = RepositoryLock(NAME, cache)
        with fetching:
            assert fetching.try_to_fetch()
            refused = await fetch(served.server, "DELETE", "/api/delete", body)
            assert (refused.status, "is being fetched" in refused.json()["error"]) == (409, True)
        assert (await fetch(served.server, "DELETE", "/api/delete", body)).status == 200


async def test_a_pull_ends_with_its_last_client(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(len(hub.models[NAME][WEIGHTS]) // 2, "hold")
    async with serving(Settings(shutdown_timeout=20.0)) as served:
        async with connected(served.server) as client:
            await client.request("POST", "/api/pull", b'{"model": "org/chat"}')
            await trio.to_thread.run_sync(hub.held.wait)
        async with connected(served.server) as client:
            state = ""
            while state != "cancelled":
                await client.request("GET", "/admin/pulls")
                [pull] = (await client.receive_response()).json()["pulls"]
                state = pull["state"]
