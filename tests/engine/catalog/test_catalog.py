"""Which models can be asked for: names, the hub's cache, and downloads of what the operator named."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.catalog import DEMO_ID, Catalog, CatalogEntry
from greenroom.engine.catalog.download import download
from greenroom.engine.catalog.hub_cache import find_cached_model, hub_cache_folder
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.hub_server import COMMIT, hub_server


def make_model(folder: Path, written: float = 1_700_000_000, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    os.utime(folder / "config.json", (written, written))
    return folder


def make_cached(cache: Path, hub_id: str, commit: str = COMMIT, **config: Any) -> Path:
    root = cache / f"models--{hub_id.replace('/', '--')}"
    (root / "refs").mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    return make_model(root / "snapshots" / commit, **config)


def found(catalog: Catalog, model: str) -> CatalogEntry:
    entry = catalog.find(model)
    assert isinstance(entry, CatalogEntry), entry
    return entry


def missing(catalog: Catalog, model: str) -> Problem:
    problem = catalog.find(model)
    assert isinstance(problem, Problem), problem
    assert (problem.status, problem.code) == (404, "model_not_found")
    return problem


def test_named_models_come_first_in_their_order(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    make_cached(cache, "aaa/first-by-name")
    make_cached(cache, "org/named")
    local = make_model(tmp_path / "mine")
    catalog = Catalog((str(local), "org/named"), cache=cache)
    assert [entry.id for entry in catalog.entries()] == ["mine", "org/named", "aaa/first-by-name"]
    assert catalog.entries()[0] == CatalogEntry("mine", local, 1_700_000_000, "greenroom", None)
    assert found(catalog, "org/named").owned_by == "org"
    assert found(catalog, "default").id == "mine"


def test_the_demo_is_there_only_if_nothing_is_named(tmp_path: Path) -> None:
    demo = make_model(tmp_path / "demo")
    cache = tmp_path / "cache"
    make_cached(cache, "org/model")
    alone = Catalog((), demo, cache)
    assert [entry.id for entry in alone.entries()] == [DEMO_ID, "org/model"]
    assert found(alone, "default").folder == demo
    named = Catalog(("org/model",), demo, cache)
    assert [entry.id for entry in named.entries()] == ["org/model"]
    missing(named, DEMO_ID)


def test_folders_of_the_same_name_get_a_suffix(tmp_path: Path) -> None:
    folders = [make_model(tmp_path / parent / "model") for parent in "abc"]
    catalog = Catalog(tuple(map(str, folders)), cache=tmp_path / "cache")
    assert [entry.id for entry in catalog.entries()] == ["model", "model-2", "model-3"]
    assert [entry.folder for entry in catalog.entries()] == folders


def test_relative_folders_and_repetitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "here" / "model")
    monkeypatch.chdir(tmp_path)
    catalog = Catalog(("./here/model", "here/model/", "org/x", "org/x"), cache=tmp_path / "cache")
    assert [entry.id for entry in catalog.entries()] == ["model", "org/x"]


def test_a_model_named_default_is_not_shadowed(tmp_path: Path) -> None:
    first, second = make_model(tmp_path / "first"), make_model(tmp_path / "default")
    assert found(Catalog((str(first), str(second)), cache=tmp_path), "default").folder == second


def test_a_name_is_a_model_then_an_alias_then_a_pattern(tmp_path: Path) -> None:
    first, second = make_model(tmp_path / "first"), make_model(tmp_path / "second")
    aliases = (("first", "second"), ("gpt-4o", "second"), ("gpt-*", "default"), ("*", "second"))
    catalog = Catalog((str(first), str(second)), cache=tmp_path, aliases=aliases)
    asked = {"first": first, "gpt-4o": second, "gpt-5": first, "gpt-": first, "claude": second}
    assert {name: found(catalog, name).folder for name in asked} == asked
    assert list(catalog.names()) == ["first", "second", "gpt-4o"]


def test_an_alias_means_a_model_and_no_other_alias(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    catalog = Catalog((str(model),), cache=tmp_path, aliases=(("a", "b"), ("b", "model"), ("c[1]?", "model")))
    missing(catalog, "a")
    missing(catalog, "c11")
    assert [found(catalog, name).folder for name in ("b", "c[1]?")] == [model, model]
    assert "Did you mean b" in missing(catalog, "bb").detail


def test_the_tag_of_ollamas_clients_is_part_of_a_name_or_nothing(tmp_path: Path) -> None:
    first, second = make_model(tmp_path / "first"), make_model(tmp_path / "second")
    aliases = (("llama3:latest", "second"), ("gpt", "second"), ("*", "second"))
    catalog = Catalog((str(first), str(second)), cache=tmp_path, aliases=aliases[:2])
    asked = {"first:latest": first, "llama3:latest": second, "gpt:latest": second, "default:latest": first}
    assert {name: found(catalog, name).folder for name in asked} == asked
    assert "Did you mean llama3:latest" in missing(catalog, "llama3").detail
    missing(catalog, ":latest")
    # A pattern that fits everything takes no model's name.
    anything = Catalog((str(first), str(second)), cache=tmp_path, aliases=aliases)
    assert {name: found(anything, name).folder for name in asked} == asked


def test_an_unknown_model_is_a_404_with_near_names(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    make_cached(cache, "mlx-community/Qwen3-0.6B-4bit")
    catalog = Catalog((str(make_model(tmp_path / "tiny")),), cache=cache)
    assert "mlx-community/Qwen3-0.6B-4bit" in missing(catalog, "mlx-community/qwen3-0.6b-8bit").detail
    assert "Did you mean" not in missing(catalog, "zzzzzzzz").detail
    assert len(missing(catalog, "x" * 100_000).detail) < 500


@pytest.mark.parametrize(
    "model",
    [
        "../secret",
        "/etc",
        "..",
        ".",
        "",
        "~",
        "org/../../secret",
        "models--org--hidden",
        "org/hidden/../x",
        "a\0b",
    ],
)
def test_a_request_cannot_reach_other_folders(tmp_path: Path, model: str) -> None:
    make_model(tmp_path / "secret")
    cache = tmp_path / "cache"
    make_cached(cache, "org/seen")
    catalog = Catalog((str(make_model(tmp_path / "named")),), cache=cache)
    missing(catalog, model)
    missing(catalog, str(tmp_path / "secret"))
    assert find_cached_model(model, cache) is None


def test_only_complete_models_of_the_cache_are_listed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    make_cached(cache, "org/good")
    make_cached(cache, "org/audio", model_type="whisper")
    make_cached(cache, "org/code", model_file="x.py")
    (make_cached(cache, "org/no-weights") / "model.safetensors").unlink()
    (make_cached(cache, "org/no-tokenizer") / "tokenizer.json").unlink()
    (make_cached(cache, "org/broken") / "config.json").write_text("{")
    sharded = make_cached(cache, "org/sharded")
    shards = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(shards))
    (sharded / "model-1.safetensors").write_bytes(b"")
    (sharded / "model-2.safetensors").symlink_to(tmp_path / "blob-that-is-not-there-yet")
    (cache / "datasets--org--data").mkdir()
    (cache / "models--nonsense").mkdir()
    (cache / "version.txt").write_text("1")
    catalog = Catalog(("org/good",), cache=cache)
    assert [entry.id for entry in catalog.entries()] == ["org/good", "org/audio"]
    (tmp_path / "blob-that-is-not-there-yet").write_bytes(b"")
    assert [entry.id for entry in Catalog(("org/good",), cache=cache).entries()] == [
        "org/good",
        "org/audio",
        "org/sharded",
    ]


def test_the_main_snapshot_is_preferred_and_an_incomplete_one_passed_over(tmp_path: Path) -> None:
    old, new = "a" * 40, "b" * 40
    make_cached(tmp_path, "org/model", old)
    make_cached(tmp_path, "org/model", new)
    refs = tmp_path / "models--org--model" / "refs" / "main"
    for commit in (old, new):
        refs.write_text(commit)
        folder = find_cached_model("org/model", tmp_path)
        assert folder is not None
        assert folder.name == commit
    (tmp_path / "models--org--model" / "snapshots" / new / "config.json").unlink()
    folder = find_cached_model("org/model", tmp_path)
    assert folder is not None
    assert folder.name == old
    refs.write_text("../../../../secret")
    assert find_cached_model("org/model", tmp_path) == folder


def test_the_cache_is_found_where_the_hub_library_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub_cache_folder() == Path.home() / ".cache/huggingface/hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert hub_cache_folder() == Path("/xdg/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert hub_cache_folder() == Path.home() / "hf/hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    assert hub_cache_folder() == Path("/elsewhere")


def test_a_hub_is_scanned_again_only_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    make_cached(tmp_path, "org/first", max_position_embeddings=4096)
    catalog = Catalog(("org/first",), cache=tmp_path)
    assert [entry.id for entry in catalog.entries()] == ["org/first"]
    make_cached(tmp_path, "org/second", max_position_embeddings=4096)
    assert [entry.id for entry in catalog.entries()] == ["org/first"]
    clock[0] = 60.0
    assert [entry.id for entry in catalog.entries()] == ["org/first", "org/second"]


FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "run_me.py": b"raise SystemExit",
    "photo.png": b"png",
}


def test_a_named_model_is_downloaded_and_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(("org/model",), cache=tmp_path)
    assert found(catalog, "org/model") == CatalogEntry("org/model", None, 0, "org", "org/model")
    with hub_server({"org/model": FILES}) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        folder = download("org/model", cache=tmp_path)
        assert {path.name for path in folder.iterdir()} == {
            "config.json",
            "tokenizer.json",
            "model.safetensors",
        }
        assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert any("model.safetensors" in path for path in asked)
        assert "run_me.py" in {path.name for path in download("org/model", True, tmp_path).iterdir()}
    entry = found(catalog, "org/model")
    assert entry.folder == folder
    assert entry.created > 0


SPEAKS = {
    "config.json": b'{"istftnet": {}, "plbert": {}}',
    "kokoro-v1_0.safetensors": b"weights",
    "voices/bella.safetensors": b"voice",
    "samples/hello.wav": b"sound",
}
EMBEDS = {
    "config.json": b'{"model_type": "bert"}',
    "modules.json": b"[]",
    "1_Pooling/config.json": b"{}",
    "2_Dense/model.safetensors": b"layer",
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "onnx/model.onnx": b"other",
    "openvino/model.safetensors": b"other",
}


@pytest.mark.parametrize(
    ("files", "unwanted"),
    [(SPEAKS, {"samples/hello.wav"}), (EMBEDS, {"onnx/model.onnx", "openvino/model.safetensors"})],
)
def test_each_kind_gets_the_files_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], unwanted: set[str]
) -> None:
    with hub_server({"org/model": files}) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        folder = download("org/model", cache=tmp_path)
    fetched = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert fetched == files.keys() - unwanted
    assert found(Catalog(("org/model",), cache=tmp_path), "org/model").folder == folder


def test_a_model_that_speaks_is_complete_once_all_of_its_files_have_come(tmp_path: Path) -> None:
    folder = make_cached(tmp_path, "org/model", model_type="kokoro")
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    assert find_cached_model("org/model", tmp_path) is None
    (folder / "kokoro-v1_0.safetensors").write_bytes(b"")
    assert find_cached_model("org/model", tmp_path) == folder
    blobs = tmp_path / "models--org--model" / "blobs"
    blobs.mkdir()
    (blobs / "abc.incomplete").write_bytes(b"")
    assert find_cached_model("org/model", tmp_path) is None


@pytest.mark.parametrize("hub_id", ["org/unknown", "org/model"])
def test_a_download_that_fails_is_a_load_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_id: str
) -> None:
    with hub_server({}) as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address if hub_id == "org/unknown" else "http://127.0.0.1:9")
        with pytest.raises(ProblemError) as caught:
            download(hub_id, cache=tmp_path)
    problem = caught.value.problem
    assert (problem.status, problem.code) == (503, "load_failed")
    assert hub_id in problem.detail
    assert "\n" not in problem.detail
