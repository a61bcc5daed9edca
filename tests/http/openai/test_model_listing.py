"""Facts in lists of models, the files read for them, and the profiles and default models in them."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import httpx2
import psutil
import pytest

from greenroom.engine.catalog import catalog
from greenroom.engine.catalog.catalog import Catalog
from greenroom.http.encoding.encoding import json_bytes
from greenroom.http.openai import protocol as openai_protocol
from greenroom.http.terminal.streams import served_ids
from greenroom.schemas.settings.settings import ModelSettings, Profile, Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.models.model_folders import make_model
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import fetch, serving
from greenroom.tests.support.servers.hub_server import hub_server
from greenroom.tests.support.servers.server_processes import serving as serving_process


@pytest.fixture
def settings(tiny_model: TinyModel) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=10.0)


async def test_a_list_tells_what_is_known_of_each_model(settings: Settings) -> None:
    table = ("qwen3", ModelSettings(max_context=64, tool_parser="harmony"))
    settings = attrs.evolve(
        settings, model_settings=(table,), temperature=0.5, origins=(("temperature", "file"),)
    )
    async with serving(settings) as served:
        body = {"model": "qwen3", "prompt": "a", "max_tokens": 1}
        assert (await fetch(served.server, "POST", "/v1/completions", body)).status == 200
        used, idle = (await fetch(served.server, "GET", "/v1/models")).json()["data"]
        one = (await fetch(served.server, "GET", "/v1/models/qwen3")).json()
    assert one == used
    # Open WebUI reads id, name, owned_by and created; Cline and Continue read ids.
    assert {used[name] for name in ("id", "name")} == {"qwen3"}
    assert (used["object"], type(used["created"]), used["owned_by"]) == ("model", int, "greenroom")
    assert (used["type"], used["family"], used["architecture"]) == ("text", "qwen", "qwen3")
    assert (used["state"], idle["state"], used["probed"]) == ("ready", "idle", False)
    assert (used["status"], idle["status"]) == ("Ready", "Idle")
    assert (used["tools"], used["tool_parser"], idle["tool_parser"]) == (True, "harmony", None)
    assert used["size_bytes"] > 0
    assert used["required_bytes"] > 0
    assert used["fits"] is True
    assert used["generation"] == {"temperature": 0.5}
    assert used["settings"]["max_context"] == {"value": 64, "origin": "model"}
    assert used["settings"]["temperature"] == {"value": 0.5, "origin": "file"}
    assert idle["settings"]["max_context"] == {"value": None, "origin": "default"}


async def test_a_profile_is_listed_and_answers_by_its_models_actor_with_its_own_defaults(
    settings: Settings,
) -> None:
    profiles = (("qwen3:short", Profile(model="qwen3", max_tokens=3)), ("all", Profile(model="default")))
    async with serving(attrs.evolve(settings, profiles=profiles, max_tokens=5)) as served:

        def answer(client: Any, model: str, **values: Any) -> tuple[str, int]:
            done = client.completions.create(model=model, prompt="a b c", temperature=0, **values)
            return done.model, done.usage.completion_tokens

        listed = await ask(served, lambda client: [model.id for model in client.models.list()])
        assert listed == ["qwen3", "llama", "qwen3:short", "all"]
        assert await ask(served, lambda client: answer(client, "qwen3:short")) == ("qwen3:short", 3)
        assert await ask(served, lambda client: answer(client, "qwen3:short", max_tokens=4)) == (
            "qwen3:short",
            4,
        )
        assert await ask(served, lambda client: answer(client, "all")) == ("all", 5)
        assert await ask(served, lambda client: answer(client, "qwen3")) == ("qwen3", 5)
        data = {
            model["id"]: model for model in (await fetch(served.server, "GET", "/v1/models")).json()["data"]
        }
        running = (await fetch(served.server, "GET", "/api/ps")).json()["models"]
    short = data["qwen3:short"]
    assert (short["base_model"], short["state"], short["generation"]) == ("qwen3", "ready", {"max_tokens": 3})
    assert short["settings"]["max_tokens"] == {"value": 3, "origin": "profile"}
    assert [model["name"] for model in running] == ["qwen3"]  # one actor for all of them


async def test_default_means_the_first_of_a_list_that_can_be_loaded(
    settings: Settings, tmp_path: Path
) -> None:
    broken = make_model(tmp_path / "broken", architectures=["LlamaForCausalLM"])
    settings = attrs.evolve(settings, models=(str(broken), *settings.models), default=("broken", "llama"))
    async with serving(settings) as served:
        body = {"model": "default", "prompt": "a", "max_tokens": 1}
        answers = [await fetch(served.server, "POST", "/v1/completions", body) for _ in range(2)]
        named = await fetch(served.server, "POST", "/v1/completions", {**body, "model": "broken"})
    assert [answer.status for answer in answers] == [200, 200]
    assert [answer.json()["model"] for answer in answers] == ["llama", "llama"]
    assert named.status == 503


async def test_no_model_of_a_list_that_cannot_be_loaded_keeps_the_next_from_answering(
    settings: Settings, tmp_path: Path
) -> None:
    """The first cannot be opened, and the second's weights end too early, after its prompt was prepared."""
    broken = make_model(tmp_path / "broken", architectures=["LlamaForCausalLM"])
    cut = shutil.copytree(Path(settings.models[-1]), tmp_path / "cut")
    weights = next(cut.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1000])
    models, body = (str(broken), str(cut), *settings.models), {"prompt": "a", "max_tokens": 1}
    alone = attrs.evolve(settings, models=models[:2], default=("broken", "cut"))
    async with serving(alone) as served:
        refused = await fetch(served.server, "POST", "/v1/completions", {**body, "model": "default"})
    assert (refused.status, refused.json()["error"]["code"]) == (503, "load_failed")
    settings = attrs.evolve(settings, models=models, default=("broken", "cut", "llama"))
    async with serving(settings) as served:
        streamed = {**body, "model": "default", "stream": True}
        stream = await fetch(served.server, "POST", "/v1/completions", streamed)
        plain = await fetch(served.server, "POST", "/v1/completions", {**body, "model": "default"})
    assert (stream.status, plain.status) == (200, 200)
    assert b'"model":"llama"' in stream.body
    assert b"[DONE]" in stream.body
    assert plain.json()["model"] == "llama"


async def test_an_unlisted_hub_id_is_downloaded_only_if_that_is_allowed(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("llama")
    files = {path.name: path.read_bytes() for path in folder.iterdir()} | {"code.py": b"raise SystemExit"}
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    body = {"model": "org/new", "prompt": "a", "max_tokens": 1}
    with hub_server({"org/new": files}) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        async with serving(settings) as served:
            refused = await fetch(served.server, "POST", "/v1/completions", body)
        assert (refused.status, refused.json()["error"]["code"], asked) == (404, "model_not_found", [])
        async with serving(attrs.evolve(settings, allow_downloads=True)) as served:
            answer = await fetch(served.server, "POST", "/v1/completions", body)
            unknown = await fetch(served.server, "POST", "/v1/completions", {**body, "model": "org/unknown"})
            shown = await fetch(served.server, "GET", "/v1/models/org/unknown")
    assert (answer.status, answer.json().get("model")) == (200, "org/new")
    for missing in (unknown, shown):
        assert (missing.status, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert not list((tmp_path / "cache").rglob("*.py"))


OPENED: list[str] = []
LISTENING: list[Path] = []


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    """Note the paths of files opened within a folder of the test in progress."""
    if event == "open" and LISTENING and str(arguments[0]).startswith(str(LISTENING[0])):
        OPENED.append(str(arguments[0]))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[str]]:
    """Return the list of the files that are opened in the temporary folder."""
    if note_opened not in ADDED:
        ADDED.append(note_opened)
        sys.addaudithook(note_opened)
    OPENED.clear()
    LISTENING.append(tmp_path)
    yield OPENED
    LISTENING.clear()


ADDED: list[Any] = []


async def test_nothing_of_unchanged_folders_is_read_again(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    for number in range(50):
        make_model(tmp_path / "models" / f"model-{number:02}", max_position_embeddings=64)
    clock, encoded = [1000.0], list[object]()
    monkeypatch.setattr(catalog, "time", _Clock(clock))

    def encode(value: object) -> bytes:
        encoded.append(value)
        return json_bytes(value)

    monkeypatch.setattr(openai_protocol, "json_bytes", encode)
    settings = Settings(model_dir=(str(tmp_path / "models"),))
    async with serving(settings) as served:

        async def listed() -> list[Any]:
            data: list[Any] = (await fetch(served.server, "GET", "/v1/models")).json()["data"]
            return data

        first = await listed()
        assert len(first) == 50
        assert await served_ids(served.system.pool, settings) == [each["id"] for each in first]
        assert opened
        for _ in range(3):
            clock[0] += 60.0
            opened.clear()
            assert (await listed(), opened) == (first, [])
        assert len(encoded) == 1
        make_model(tmp_path / "models" / "model-07", max_position_embeddings=128)
        clock[0] += 60.0
        again = await listed()
        assert {Path(path).parent.name for path in opened} == {"model-07"}
    assert [one["id"] for one, other in zip(again, first, strict=True) if one != other] == ["model-07"]


@pytest.mark.soak
def test_a_list_of_200_folders_costs_the_server_3_ms_and_a_look_at_the_disk_20(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    for number in range(200):
        make_model(tmp_path / "models" / f"model-{number:03}", max_position_embeddings=64)
    options = ("--model-dir", str(tmp_path / "models"), "--db", ":memory:")
    with serving_process(*options) as process, httpx2.Client(base_url=process.address) as client:
        server = psutil.Process(process.process.pid)

        def cpu_of(calls: int) -> float:
            """Return the server's CPU time for one of so many calls, in milliseconds."""
            before = server.cpu_times()
            for _ in range(calls):
                assert client.get("/v1/models").status_code == 200
            after = server.cpu_times()
            spent: float = after.user + after.system - before.user - before.system
            return 1000 * spent / calls

        cpu_of(20)
        # The best of three, since others may use the processor's caches meanwhile.
        assert min(cpu_of(500) for _ in range(3)) <= 3.0
    clock = [1000.0]
    monkeypatch.setattr(catalog, "time", _Clock(clock))
    listed = Catalog(model_dirs=(str(tmp_path / "models"),))
    assert len(listed.entries()) == 200

    def look() -> float:
        before = time.thread_time()
        clock[0] += 60.0
        listed.entries()
        return time.thread_time() - before

    assert min(look() for _ in range(5)) <= 0.02


class _Clock:
    def __init__(self, now: list[float]) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now[0]
