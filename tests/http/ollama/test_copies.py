"""Ollama's `copy` with its own SDK: a further name of a model, which outlives the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from ollama import Client, ResponseError

from greenroom.schemas.settings.profiles import Profile
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import fetch, serving
from greenroom.tests.support.servers.server_processes import run_greenroom

COPY = "/api/copy"
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def settings(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a server with a model, a profile of it, a database and an empty cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    profiles = (("short", Profile(model="llama", max_tokens=2)),)
    folders, database = (str(tiny_model("llama")),), str(tmp_path / "greenroom.db")
    return Settings(models=folders, profiles=profiles, db=database, max_tokens=6, shutdown_timeout=20.0)


def listed(client: Client) -> list[str]:
    return [str(model.model) for model in client.list().models]


def tokens_of(client: Client, name: str) -> int:
    answer = client.chat(name, MESSAGES, options={"temperature": 0})
    return int(answer.eval_count or 0)


async def test_a_copy_is_used_at_once_kept_over_a_restart_and_deleted(
    settings: Settings, tmp_path: Path
) -> None:
    def copy(address: str) -> None:
        with Client(host=address, timeout=300) as client:
            assert listed(client) == ["llama", "short"]
            client.copy("llama", "mine/llama:fast")
            client.copy("short:latest", "shorter:latest")
            assert listed(client) == ["llama", "short", "mine/llama:fast", "shorter"]
            client.chat("mine/llama:fast", MESSAGES, options={"num_predict": 1})
            assert client.show("shorter").parameters
            assert tokens_of(client, "shorter") == tokens_of(client, "short") == 2

    def delete(address: str) -> None:
        with Client(host=address, timeout=300) as client:
            assert listed(client) == ["llama", "short", "mine/llama:fast", "shorter"]
            assert tokens_of(client, "shorter:latest") == 2
            client.delete("shorter:latest")
            client.delete("mine/llama:fast")
            assert listed(client) == ["llama", "short"]
            with pytest.raises(ResponseError, match="shorter"):
                client.chat("shorter", MESSAGES)
            client.copy("llama", "shorter")
            assert tokens_of(client, "llama") == tokens_of(client, "shorter") > 2
            client.delete("shorter")

    async with serving(settings) as served:
        await trio.to_thread.run_sync(copy, served.server.address)
    [folder], database = settings.models, str(tmp_path / "greenroom.db")
    lines = run_greenroom("models", folder, GREENROOM_DB=database).stdout.splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["llama", "mine/llama:fast", "shorter"]
    async with serving(settings) as served:
        await trio.to_thread.run_sync(delete, served.server.address)
    async with serving(settings) as served:
        models = (await fetch(served.server, "GET", "/api/tags")).json()["models"]
        assert [model["name"] for model in models] == ["llama", "short"]


async def test_a_copy_needs_a_model_and_a_free_name(settings: Settings) -> None:
    async with serving(settings) as served:
        for source, destination, status, named in (
            ("nothing", "mine", 404, "nothing"),
            ("", "mine", 404, "''"),
            ("llama", "", 400, "no name"),
            ("llama", "../mine", 400, "no name"),
            ("llama", "a/b/c", 400, "no name"),
            ("llama", "a b", 400, "no name"),
            ("llama", "x" * 100_000, 400, "no name"),
            ("llama", "mine\n", 400, "no name"),
            ("llama", "llama", 400, "already"),
            ("llama", "llama:latest", 400, "already"),
            ("llama", "short", 400, "already"),
            ("llama", "default", 400, "already"),
        ):
            answer = await fetch(served.server, "POST", COPY, {"source": source, "destination": destination})
            assert (answer.status, named in answer.json()["error"]) == (status, True), answer.body
        body = {"source": "llama", "destination": "mine"}
        copied = await fetch(served.server, "POST", COPY, body)
        assert (copied.status, copied.body, copied.headers.get("content-type")) == (200, b"", None)
        assert (await fetch(served.server, "POST", COPY, body)).status == 400
        outside = await fetch(served.server, "POST", COPY, body, x_forwarded_for="192.0.2.1")
        assert outside.status == 403
        broken: tuple[Any, ...] = (
            {"source": "llama"},
            {"source": 1, "destination": "x"},
            [],
            {"destination": None},
        )
        for wrong in broken:
            assert (await fetch(served.server, "POST", COPY, wrong)).status == 400
        body = {"model": "short"}
        refused = await fetch(served.server, "DELETE", "/api/delete", body)
        assert (refused.status, "another name of 'llama'" in refused.json()["error"]) == (400, True)
