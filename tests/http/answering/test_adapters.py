"""Adapters as models of their own: names, lists, `lora` in bodies, profiles, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner

from greenroom.http.commands.adapters import command
from greenroom.schemas.settings.settings import ModelSettings, Profile, Settings
from greenroom.tests.support.models.tiny_adapters import as_peft, make_adapter
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

TinyModel = Callable[..., Path]


@pytest.fixture(scope="module")
def shelf(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a base, of adapters that it takes, and of some that are refused."""
    shelf = tmp_path_factory.mktemp("shelf")
    base = shutil.copytree(tiny_model("qwen3"), shelf / "tiny:8b")
    sql = make_adapter(base, shelf / "sql", 8, seed=1, named="owner/tiny:8b")
    as_peft(make_adapter(base, shelf.parent / "law", 8, seed=2), shelf / "jura" / "law", "tiny:8b")
    lost = shutil.copytree(sql, shelf / "lost")
    config = json.loads((sql / "adapter_config.json").read_text())
    (lost / "adapter_config.json").write_text(json.dumps({**config, "model": str(lost)}))
    dora = shutil.copytree(sql, shelf / "dora")
    (dora / "adapter_config.json").write_text(json.dumps({**config, "fine_tune_type": "dora"}))
    return shelf


@pytest.fixture
async def served(shelf: Path) -> AsyncIterator[Served]:
    settings = Settings(
        model_dir=(str(shelf),),
        model_settings=(("sql", ModelSettings(alias=("query",))),),
        profiles=(("judge", Profile(model="tiny:8b", adapter="law", max_tokens=6)),),
        shutdown_timeout=60.0,
    )
    async with serving(settings) as served:
        yield served


async def ask(served: Served, model: str, path: str = "/v1/completions", **fields: Any) -> Any:
    body = {"model": model, "prompt": "The sea is", "max_tokens": 6, "temperature": 0, **fields}
    if "chat" in path or "messages" in path:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    return (await fetch(served.server, "POST", path, body)).json()


async def test_each_name_of_an_adapter_means_it_and_the_base_stays_itself(served: Served) -> None:
    async def text(model: str, **fields: Any) -> str:
        answer = await ask(served, model, **fields)
        assert "choices" in answer, answer
        assert answer["model"] in (model, "sql", "jura/law")
        return str(answer["choices"][0]["text"])

    base, sql, law = await text("tiny:8b"), await text("sql"), await text("jura/law")
    assert len({base, sql, law}) == 3
    for name in ("tiny:8b:sql", "query", "sql:latest", "default:sql"):
        assert await text(name) == sql
    assert await text("tiny:8b:law") == await text("judge") == law
    for chosen in (1, "sql", "tiny:8b:sql"):
        assert await text("tiny:8b", lora=[{"id": chosen}]) == sql
    assert await text("tiny:8b", lora=[{"id": "law", "scale": 0}]) == base
    assert await text("judge", lora=[{"id": 1, "scale": 1.0}]) == sql
    assert await text("tiny:8b", lora=[{"id": 1, "scale": 0.2}]) not in (sql, law)
    assert await text("tiny:8b", lora=[]) == base
    chat = await ask(served, "sql", "/v1/chat/completions")
    also = await ask(served, "tiny:8b", "/v1/chat/completions", lora=[{"id": "sql"}])
    assert chat["choices"][0]["message"] == also["choices"][0]["message"]


async def test_lists_tell_the_base_of_adapters_and_why_others_are_refused(served: Served) -> None:
    listed = (await fetch(served.server, "GET", "/v1/models")).json()["data"]
    known = {each["id"]: each for each in listed}
    assert set(known) >= {"tiny:8b", "sql", "jura/law", "query", "judge", "lost", "dora"}
    assert (known["sql"]["base_model"], known["jura/law"]["base_model"]) == ("tiny:8b", "tiny:8b")
    assert (known["sql"]["adapter"], known["tiny:8b"]["adapter"]) == (True, False)
    for name, reason in (("lost", "is not here"), ("dora", "DoRA")):
        assert reason in known[name]["problem"]
        refused = await ask(served, name)
        assert reason in refused["error"]["message"]
        assert name in refused["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("/v1/completions", {"lora": "sql"}, "lora"),
        ("/v1/completions", {"lora": [{"id": True}]}, "lora[0].id"),
        ("/v1/completions", {"lora": [{"id": "sql"}, {"id": "law"}]}, "lora"),
        ("/v1/completions", {"lora": [{"id": 0, "scale": 1e9}]}, "lora[0].scale"),
        ("/v1/completions", {"lora": [{"id": "no-such"}]}, "adapter"),
        ("/v1/completions", {"lora": [{"id": "../../etc"}]}, "adapter"),
        ("/v1/completions", {"lora": [{"id": 99}]}, "adapter"),
        ("/v1/responses", {"input": "Hi", "lora": [{"id": "sql"}]}, "lora"),
    ],
)
async def test_a_wrong_adapter_is_refused_by_its_field(
    served: Served, path: str, fields: dict[str, Any], named: str
) -> None:
    refused = await ask(served, "tiny:8b", path, **fields)
    assert refused["error"]["param"] == named


async def test_a_path_is_taken_from_the_operator_alone(shelf: Path) -> None:
    law = str(shelf.parent / "law")
    settings = Settings(
        model_dir=(str(shelf),),
        model_settings=(("tiny:8b", ModelSettings(adapter=law)),),
        shutdown_timeout=60.0,
    )
    async with serving(settings) as served:
        fixed = await ask(served, "tiny:8b")
        assert fixed["choices"] == (await ask(served, "jura/law"))["choices"]
        assert fixed["choices"] != (await ask(served, "sql"))["choices"]
    async with serving(attrs.evolve(settings, model_settings=())) as served:
        refused = await ask(served, "tiny:8b", lora=[{"id": law}])
        assert refused["error"]["param"] == "adapter"


async def test_adapters_come_and_go_beside_streams(shelf: Path, tmp_path: Path) -> None:
    for name in ("tiny:8b", "sql"):
        shutil.copytree(shelf / name, tmp_path / name)
    settings = Settings(model_dir=(str(tmp_path),), shutdown_timeout=60.0)
    async with serving(settings) as served:
        server = served.server
        models = ("tiny:8b", "sql") * 2
        before = [(await ask(served, model, max_tokens=40))["choices"] for model in models]
        during: dict[int, Any] = {}

        async def follow(index: int) -> None:
            during[index] = (await ask(served, models[index], max_tokens=40))["choices"]

        async with trio.open_nursery() as nursery:
            for index in range(len(models)):
                nursery.start_soon(follow, index)
            shutil.copytree(shelf / "jura" / "law", tmp_path / "law")
            added = await fetch(server, "POST", "/admin/adapters", {"name": "law"})
            assert added.json() == {"id": "law", "base_model": "tiny:8b"}
            removed = await fetch(server, "DELETE", "/admin/adapters/law")
            assert removed.json() == {"id": "law", "base_model": "tiny:8b"}
        assert [during[index] for index in range(len(models))] == before
        listed = (await fetch(server, "GET", "/admin/adapters")).json()["adapters"]
        states = {each["id"]: (each["base_model"], each["problem"]) for each in listed}
        assert states["sql"] == ("tiny:8b", None)
        assert states["law"][1] == "The operator has unloaded the adapter 'law'."
        gone = await ask(served, "law")
        assert (gone["error"]["code"], gone["error"]["param"]) == ("adapter_not_found", "model")
        assert "unloaded" in (await ask(served, "tiny:8b", lora=[{"id": "law"}]))["error"]["message"]
        await fetch(server, "POST", "/admin/adapters", {"name": "tiny:8b:law"})
        assert "choices" in await ask(served, "law")

        args = ["list", "--url", served.base_url.removesuffix("/v1")]
        printed = await trio.to_thread.run_sync(CliRunner().invoke, command, args)
        assert "sql\ttiny:8b\t" in printed.output
        for verb, text in (("unload", "is unloaded"), ("load", "is loaded beside tiny:8b")):
            done = await trio.to_thread.run_sync(CliRunner().invoke, command, [verb, "sql", *args[1:]])
            assert text in done.output
        with trio.fail_after(60.0):  # figures are published now and then
            while True:
                used = (await fetch(server, "GET", "/admin/models")).json()["models"]
                if [each["adapters"] for each in used] == [["law", "sql"]]:
                    break


@pytest.mark.parametrize("name", ["no-such", "tiny:8b", "../shelf/sql", "dora", "lost", "%2e%2e/sql"])
async def test_what_is_no_adapter_cannot_be_loaded(served: Served, shelf: Path, name: str) -> None:
    for asked in (name, str(shelf / name)):
        refused = await fetch(served.server, "POST", "/admin/adapters", {"name": asked})
        assert refused.status in (404, 503), refused.json()
    assert (await fetch(served.server, "GET", "/admin/models")).json()["models"] == []


async def test_an_adapter_larger_than_adapter_bytes_is_refused(shelf: Path) -> None:
    async with serving(
        Settings(model_dir=(str(shelf),), adapter_bytes=1000, shutdown_timeout=60.0)
    ) as served:
        refused = await ask(served, "sql")
        assert "adapters.safetensors" in refused["error"]["message"]
        assert "choices" in await ask(served, "tiny:8b")
