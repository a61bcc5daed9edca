"""Adapters as models of their own: names, lists, `lora` in bodies, profiles, and refusals."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
import pytest
import trio
from click.testing import CliRunner
from rich.console import Console
from safetensors.numpy import load_file, save_file

from greenroom.http.commands.adapters import command
from greenroom.http.commands.operate import tables
from greenroom.schemas.settings.settings import ModelSettings, Profile, Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.models.tiny_adapters import as_peft, make_adapter
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

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
    if "input" in fields:
        del body["prompt"], body["max_tokens"]
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


GREEDY = {"model": "tiny:8b", "max_tokens": 6, "temperature": 0}
HELLO = {**GREEDY, "messages": [{"role": "user", "content": "The sea is"}]}
OLLAMA = {"model": "tiny:8b", "stream": False, "options": {"num_predict": 6, "temperature": 0}}
ROUTES: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "/v1/completions": ({**GREEDY, "prompt": "The sea is"}, lambda a: a["choices"][0]["text"]),
    "/v1/chat/completions": (HELLO, lambda a: a["choices"][0]["message"]["content"]),
    "/v1/messages": (HELLO, lambda a: a["content"][0]["text"]),
    "/v1/responses": (
        {"model": "tiny:8b", "max_output_tokens": 16, "temperature": 0, "input": "The sea is"},
        lambda a: a["output"][0]["content"][0]["text"],
    ),
    "/api/chat": ({**OLLAMA, "messages": HELLO["messages"]}, lambda a: a["message"]["content"]),
    "/api/generate": ({**OLLAMA, "prompt": "The sea is"}, lambda a: a["response"]),
}


async def test_every_route_that_writes_text_takes_adapters_and_counts_them(shelf: Path) -> None:
    settings = Settings(model_dir=(str(shelf),), audit=True, db=":memory:", shutdown_timeout=60.0)
    async with serving(settings) as served:
        for path, (body, text_of) in ROUTES.items():

            async def text(path: str = path, text_of: Any = text_of, **body: Any) -> Any:
                answer = await fetch(served.server, "POST", path, body)
                assert answer.status == 200, (path, answer.body)
                return text_of(answer.json())

            named = [await text(**{**body, "model": name}) for name in ("tiny:8b", "sql", "tiny:8b:sql")]
            asked = [await text(**body, lora=[{"id": "sql", "scale": scale}]) for scale in (0, 1)]
            assert named[0] == asked[0] != named[1], path
            assert named[1] == named[2] == asked[1], path

        async def are_counted() -> bool:
            """Return whether all that is told behind the answers has been told."""
            found = (await fetch(served.server, "GET", "/admin/audit?limit=100")).json()["requests"]
            rows = {
                path: Counter(each["model"] for each in found if path in each["route"]) for path in ROUTES
            }
            counted = (await fetch(served.server, "GET", "/metrics")).body.decode()
            return (
                rows == {path: Counter({"sql": 4, "tiny:8b": 1}) for path in ROUTES}
                and 'greenroom:adapter_requests_total{adapter="sql",model_name="tiny:8b"} 24.0' in counted
                and 'greenroom:adapters{model_name="tiny:8b"} 1.0' in counted
                and 'greenroom:adapter_bytes{model_name="tiny:8b"} 0.0' not in counted
            )

        await eventually(are_counted)


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
        ("/v1/responses", {"input": "Hi", "lora": [{"id": "sql", "scale": "1"}]}, "lora[0].scale"),
        ("/v1/embeddings", {"input": "Hi", "lora": [{"id": "sql"}]}, "lora"),
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

        async def are_published() -> bool:
            used = (await fetch(server, "GET", "/admin/models")).json()["models"]
            return [each["adapters"] for each in used] == [["law", "sql"]]

        await eventually(are_published)  # figures are published now and then
        used = (await fetch(server, "GET", "/admin/models")).json()["models"]
        shown = Console(file=io.StringIO(), width=100)
        with shown.capture() as seen:
            shown.print(tables({"models": used, "requests": [], "mcp": []}))
        rows = [line.split()[:2] for line in seen.get().splitlines()]
        assert rows[-3:] == [["tiny:8b", "ready"], ["+", "law"], ["+", "sql"]]


@pytest.mark.parametrize("name", ["no-such", "tiny:8b", "../shelf/sql", "dora", "lost", "%2e%2e/sql"])
async def test_what_is_no_adapter_cannot_be_loaded(served: Served, shelf: Path, name: str) -> None:
    for asked in (name, str(shelf / name)):
        refused = await fetch(served.server, "POST", "/admin/adapters", {"name": asked})
        assert refused.status in (404, 503), refused.json()
    unnamed = (await fetch(served.server, "POST", "/admin/adapters", {"name": " "})).json()["error"]
    assert unnamed["param"] == "name"
    assert (await fetch(served.server, "GET", "/admin/models")).json()["models"] == []


async def test_keys_learn_of_no_adapter_of_a_base_that_they_may_not_use(served: Served) -> None:
    made = [{"name": "boss", "admin": True}, {"name": "one", "models": ["tiny:8b"]}]
    made.append({"name": "other", "models": ["greenroom-demo"]})
    boss, one, other = "", "", ""
    for body in made:
        answer = await fetch(served.server, "POST", "/admin/keys", body, x_api_key=boss)
        boss, one, other = boss or answer.json()["secret"], other, answer.json()["secret"]

    async def told(key: str, model: str, **fields: Any) -> str:
        body = {"model": model, "prompt": "The sea is", "max_tokens": 1, **fields}
        answer = await fetch(served.server, "POST", "/v1/completions", body, x_api_key=key)
        return "" if answer.status == 200 else str(answer.json()["error"]["message"])

    dora, absent = {"lora": [{"id": "dora"}]}, {"lora": [{"id": "absent"}]}
    assert (await told(one, "sql"), await told(one, "tiny:8b:law")) == ("", "")
    assert "DoRA" in await told(one, "dora")
    assert "DoRA" in await told(one, "tiny:8b", **dora)
    assert "has no adapter 'absent'" in await told(one, "tiny:8b", **absent)
    for model, fields in (("sql", {}), ("dora", {}), ("lost", {}), ("tiny:8b", dora), ("tiny:8b", absent)):
        unknown = await told(other, "nowhere", **fields)
        assert await told(other, model, **fields) == unknown.replace("nowhere", model)
    listed = await fetch(served.server, "GET", "/v1/models", x_api_key=other)
    assert [each["id"] for each in listed.json()["data"]] == []


async def test_an_adapter_larger_than_adapter_bytes_is_refused(shelf: Path) -> None:
    async with serving(
        Settings(model_dir=(str(shelf),), adapter_bytes=1000, shutdown_timeout=60.0)
    ) as served:
        refused = await ask(served, "sql")
        assert "adapters.safetensors" in refused["error"]["message"]
        assert "choices" in await ask(served, "tiny:8b")


Q = "model.layers.0.self_attn.q_proj"


def _weights(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "adapters.safetensors")
        save_file(change(tensors) or tensors, folder / "adapters.safetensors")

    return spoil


def _raw(content: Callable[[bytes], bytes], name: str = "adapters.safetensors") -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = folder / name
        content_before = file.read_bytes()
        file.unlink()
        file.write_bytes(content(content_before))

    return spoil


def _config(**fields: Any) -> Callable[[Path], None]:
    return _raw(lambda before: json.dumps({**json.loads(before), **fields}).encode(), "adapter_config.json")


def _link(target: str, name: str = "adapters.safetensors") -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return spoil


def _pickled(folder: Path) -> None:
    (folder / "adapters.safetensors").rename(folder / "adapter_model.bin")


def _pipe(folder: Path) -> None:
    (folder / "adapters.safetensors").unlink()
    os.mkfifo(folder / "adapters.safetensors")


def _folder(folder: Path) -> None:
    (folder / "adapters.safetensors").unlink()
    (folder / "adapters.safetensors").mkdir()


def _header(text: bytes) -> Callable[[Path], None]:
    return _raw(lambda _: struct.pack("<Q", len(text)) + text + bytes(2048))


def _overlapping(shape: list[int]) -> bytes:
    factors = {
        f"{Q}.lora_a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 1024]},
        f"{Q}.lora_b": {"dtype": "F32", "shape": [4, 128], "data_offsets": [0, 2048]},
    }
    return json.dumps(factors).encode()


def _peft(**fields: Any) -> Callable[[Path], None]:
    return _config(peft_type="LORA", **fields)


READ_LATER = ("nan", "infinite", "overlap")
"""Faults in what lists do not read."""

WHOLE = "no whole safetensors file"
ONES = np.ones((64, 300), np.float32)
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "int8": (_weights(lambda t: {k: v.astype(np.int8) for k, v in t.items()}), "number format 'I8'"),
    "float64": (_weights(lambda t: {k: v.astype(np.float64) for k, v in t.items()}), "number format 'F64'"),
    "rank-300": (
        _weights(lambda t: {f"{Q}.lora_a": ONES, f"{Q}.lora_b": np.ascontiguousarray(ONES.T)}),
        "at most 256",
    ),
    "rank-0": (
        _weights(lambda t: {f"{Q}.lora_a": ONES[:, :0], f"{Q}.lora_b": ONES.T[:0]}),
        "does not have the bytes of its shape",
    ),
    "nan": (_weights(lambda t: t[f"{Q}.lora_a"].fill(np.nan)), "not finite"),
    "infinite": (_weights(lambda t: t[f"{Q}.lora_b"].fill(np.inf)), "not finite"),
    "one-factor": (_weights(lambda t: {k: v for k, v in t.items() if k != f"{Q}.lora_b"}), "only one of two"),
    "whole-layer": (
        _weights(lambda t: t.update({f"{Q}.weight": np.ones((8, 8), "f")})),
        "no low-rank factor",
    ),
    "magnitudes": (_weights(lambda t: t.update({f"{Q}.m": np.ones(8, "f")})), "DoRA"),
    "nothing": (_weights(lambda t: {"x": np.ones(1, "f")}), "no low-rank factor"),
    "megabyte-name": (_weights(lambda t: t.update({"x" * 1_000_000: np.ones(1, "f")})), "names of more than"),
    "other-layer": (
        _weights(lambda t: t.update({f"{Q}.lora_a": np.concatenate([t[f"{Q}.lora_a"]] * 2)})),
        "is trained for 128 inputs and 128 outputs",
    ),
    "no-such-layer": (
        _weights(lambda t: {k.replace("layers.0", "layers.99"): v for k, v in t.items()}),
        "has no layer",
    ),
    "twice": (
        _weights(
            lambda t: t.update(
                {f"base_{k}".replace("base_model.", "base_model.model."): v for k, v in t.items()}
            )
        ),
        "are the same layer",
    ),
    "cut": (_raw(lambda before: before[:-8]), WHOLE),
    "cut-header": (_raw(lambda before: before[:20]), WHOLE),
    "empty": (_raw(lambda _: b""), WHOLE),
    "claims-much": (
        _raw(lambda before: struct.pack("<Q", 1 << 60) + before[8:]),
        "no whole safetensors file",
    ),
    "pickle-inside": (_raw(lambda _: b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR."), WHOLE),
    "pickle": (_pickled, "there is no adapters.safetensors"),
    "overlap": (_header(_overlapping([64, 4])), WHOLE),
    "negative": (_header(_overlapping([-64, -4])), "does not have the bytes of its shape"),
    "huge-shape": (_header(_overlapping([1 << 62, 4])), "does not have the bytes of its shape"),
    "nested-header": (_header(b'{"x":' + b"[" * 100_000), WHOLE),
    "password": (_link("/etc/passwd"), WHOLE),
    "zeros": (_link("/dev/zero"), "adapters.safetensors"),
    "nowhere": (_link("/no/such/file"), "there is no adapters.safetensors"),
    "pipe": (_pipe, "there is no adapters.safetensors"),
    "folder": (_folder, "there is no adapters.safetensors"),
    "config-password": (_link("/etc/passwd", "adapter_config.json"), "is not JSON"),
    "config-text": (_raw(lambda _: b"hello", "adapter_config.json"), "is not JSON"),
    "config-latin": (_raw(lambda _: b'{"model": "\xe9"}', "adapter_config.json"), "is not UTF-8"),
    "config-list": (_raw(lambda _: b"[]", "adapter_config.json"), "does not hold a JSON object"),
    "config-nested": (_raw(lambda _: b"[" * 200_000, "adapter_config.json"), "nested too deeply"),
    "config-large": (_raw(lambda b: b + b" " * 5_000_000, "adapter_config.json"), "adapter_config.json"),
    "no-base": (_config(model=""), "names no base model"),
    "itself": (_config(model="itself"), "'itself' is not here"),
    "of-an-adapter": (_config(model="sql"), "'sql' is not here"),
    "path": (_config(model="../../../etc"), "is not here"),
    "megabyte-base": (_config(model="m" * 1_000_000), "is not here"),
    "scale-nan": (_config(lora_parameters={"scale": float("nan")}), "no scale"),
    "scale-text": (_config(lora_parameters={"scale": "1"}), "no scale"),
    "full": (_config(fine_tune_type="full"), "full fine-tuning"),
    "prefix-tuning": (_config(peft_type="PREFIX_TUNING"), "only LORA"),
    "alpha": (_peft(lora_alpha=10**400), "there is no adapter_model.safetensors"),
    "saves-modules": (_peft(modules_to_save=["lm_head"]), "modules_to_save"),
}


async def test_hostile_folders_are_refused_by_name_and_harm_nothing(shelf: Path, tmp_path: Path) -> None:
    for name in ("tiny:8b", "sql"):
        shutil.copytree(shelf / name, tmp_path / name)
    for name, (spoil, _) in HOSTILE.items():
        spoil(shutil.copytree(shelf / "sql", tmp_path / name))
    async with serving(Settings(model_dir=(str(tmp_path),), shutdown_timeout=60.0)) as served:
        before = [(await ask(served, model))["choices"] for model in ("tiny:8b", "sql")]
        listed = (await fetch(served.server, "GET", "/admin/adapters")).json()["adapters"]
        problems = {each["id"]: each["problem"] or "" for each in listed}
        for name, (_, reason) in HOSTILE.items():
            refused = await fetch(served.server, "POST", "/v1/completions", {"model": name, "prompt": "Hi"})
            assert refused.status == 503, (name, refused.body)
            message = refused.json()["error"]["message"]
            assert f"'{name}'" in message, message
            assert reason in message, (name, message)
            assert len(message) < 600, name
            assert str(tmp_path) not in message
            assert "root:" not in message
            assert reason in problems[name] or name in READ_LATER, (name, problems[name])
            loaded = await fetch(served.server, "POST", "/admin/adapters", {"name": name})
            assert loaded.status in (400, 404, 503), (name, loaded.body)
        named = await ask(served, "tiny:8b", lora=[{"id": "x" * 1_000_000}])
        assert len(named["error"]["message"]) < 1_000
        assert [(await ask(served, model))["choices"] for model in ("tiny:8b", "sql")] == before
        used = (await fetch(served.server, "GET", "/admin/adapters")).json()["adapters"]
        assert [each["id"] for each in used if each["bytes"]] == ["sql"]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.deep
@pytest.mark.parametrize("cycles", [50, *soak_only(200)])
async def test_adapters_come_and_go_beside_eight_streams(shelf: Path, tmp_path: Path, cycles: int) -> None:
    for name in ("tiny:8b", "sql"):
        shutil.copytree(shelf / name, tmp_path / name)
    law, gaps, held = tmp_path / "law", list[float](), list[int]()
    models, done = ("tiny:8b", "sql") * 4, trio.Event()

    async def stream(served: Served, index: int) -> str:
        body = {"model": models[index], "prompt": f"The sea is {index}", "max_tokens": 300, "temperature": 0}
        text, before = "", math.inf
        async with connected(served.server) as client:
            await client.request("POST", "/v1/completions", json.dumps({**body, "stream": True}).encode())
            while not (line := await client.read_until(b"\n\n")).endswith(b"data: [DONE]\n\n"):
                now = time.perf_counter()
                gaps.append(now - before)
                text += json.loads(line[line.index(b"data: ") + 6 :])["choices"][0]["text"]
                before = now
        return text

    async def follow(served: Served, index: int, wanted: str) -> None:
        while not done.is_set():
            assert await stream(served, index) == wanted

    def replace(scale: float) -> None:
        if not law.exists():
            shutil.copytree(shelf / "sql", law)
        config = json.loads((law / "adapter_config.json").read_text())
        config["lora_parameters"]["scale"] = scale
        (law / "adapter_config.json").write_text(json.dumps(config))

    async with serving(Settings(model_dir=(str(tmp_path),), shutdown_timeout=60.0)) as served:
        alone = [await stream(served, index) for index in range(8)]
        gaps.clear()
        async with trio.open_nursery() as nursery:
            for index in range(8):
                nursery.start_soon(follow, served, index, alone[index])
            for cycle in range(cycles):
                for scale in (2.0 + cycle, 3.0 + cycle):
                    await trio.to_thread.run_sync(replace, scale)
                    added = await fetch(served.server, "POST", "/admin/adapters", {"name": "law"})
                    assert added.status == 200, added.body
                assert (await fetch(served.server, "DELETE", "/admin/adapters/law")).status == 200
                await trio.to_thread.run_sync(shutil.rmtree, law)
                held.append(mx.get_active_memory())
            done.set()
    gaps.sort()
    few = cycles // 5
    worst = f"{len(gaps)} gaps, p50 {gaps[len(gaps) // 2]:.4f} s, p99 {gaps[len(gaps) * 99 // 100]:.4f} s"
    print(f"{worst}, longest {gaps[-1]:.4f} s, memory {held[few]} to {held[-1]} bytes")
    assert gaps[-1] < 30.0  # 0.25 is measured on a quiet machine, which no test can ask for
    assert max(held[-few:]) < max(held[:few]) + 8_000_000
