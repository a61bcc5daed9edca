"""Tests of the catalog: servable models and their names."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from greenroom.engine.catalog.catalog import Catalog, find_conflict
from greenroom.engine.catalog.folders import DEMO_ID, CatalogEntry
from greenroom.engine.catalog.hub.hub_cache import find_cached_model
from greenroom.schemas.problems import Problem
from greenroom.tests.support.models.model_folders import make_cached, make_model


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


def test_what_the_operator_wrote_names_the_model_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_model(tmp_path / "my" / "embedder"), make_model(tmp_path / "other" / "embedder")
    monkeypatch.chdir(tmp_path)
    catalog = Catalog(
        ("my/embedder", str(second), "org/x"), cache=tmp_path / "cache", aliases=(("a", "org/x"),)
    )
    assert (found(catalog, "my/embedder").folder, found(catalog, str(second)).folder) == (first, second)
    assert found(catalog, "my/embedder").id == "embedder"
    assert list(catalog.names()) == ["embedder", "embedder-2", "org/x", "a"]
    assert found(catalog, str(first)).id == "embedder"  # commands of this machine name folders by their paths
    missing(catalog, str(first.parent))
    missing(catalog, f"{first}/")
    missing(catalog, f"{second}/")


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


def test_an_alias_before_the_colon_of_a_model_that_is_gone_means_nothing(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    catalog = Catalog((str(model),), cache=tmp_path, aliases=(("qwen3", "qwen3:8b"),))
    missing(catalog, "qwen3")
    missing(catalog, "other:8b")


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
    assert missing(catalog, "gpt-4o").detail == (
        "The model 'gpt-4o' does not exist here. There are: tiny, mlx-community/Qwen3-0.6B-4bit; `default` "
        'means the first. To serve one under this name, put `model."ID".alias = ["gpt-4o"]` in the settings.'
    )
    alone = Catalog((str(make_model(tmp_path / "text")),), cache=tmp_path / "none")
    assert missing(alone, "tts-1").detail == (  # which is not like `text`
        "The model 'tts-1' does not exist here. There are: text; `default` means the first. "
        'To serve it under this name, put `model.default.alias = ["tts-1"]` in the settings.'
    )
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


def test_a_name_is_an_id_an_alias_a_profile_and_last_a_pattern(tmp_path: Path) -> None:
    folders = [str(make_model(tmp_path / name)) for name in ("a", "b", "c")]
    catalog = Catalog(
        tuple(folders),
        cache=tmp_path / "cache",
        aliases=(("gpt", "b"), ("a:latest", "c"), ("shared", "a"), ("*", "c")),
        profiles={"a:code": "a", "shared": "b", "by-default": "default", "by-path": folders[1]},
    )

    def meaning(name: str) -> tuple[str, str | None]:
        found = catalog.find(name)
        assert isinstance(found, CatalogEntry)
        return found.id, found.profile

    assert {name: meaning(name) for name in ("a", "a:latest", "gpt", "gpt:latest", "shared", "other")} == {
        "a": ("a", None),
        "a:latest": ("a", None),
        "gpt": ("b", None),
        "gpt:latest": ("b", None),
        "shared": ("a", None),
        "other": ("c", None),
    }
    assert meaning("a:code:latest") == ("a", "a:code")
    assert (meaning("by-default"), meaning("by-path")) == (("a", "by-default"), ("b", "by-path"))
    assert list(catalog.names()) == [
        "a",
        "b",
        "c",
        "gpt",
        "a:latest",
        "shared",
        "a:code",
        "by-default",
        "by-path",
    ]


@pytest.mark.parametrize(
    ("ids", "aliases", "profiles", "conflict"),
    [
        (["a"], [("x", "a"), ("y*", "a")], ["a:code"], None),
        (["a"], [("a", "b")], [], "'a' is the name of a model and of an alias"),
        (["a"], [("a:latest", "b")], [], "'a' is the name of a model and of an alias"),
        (["a"], [("x", "a"), ("x", "b")], [], "'x' is the name of an alias and of an alias"),
        (["a"], [("x", "a"), ("x", "a")], [], None),
        (["a"], [("x", "a")], ["x"], "'x' is the name of an alias and of a profile"),
        (["a", "a:latest"], [], [], "'a' is the name of two models, in '0' and in '1'"),
        (["default"], [], [], None),
        (["a"], [], ["default"], "'default' is the name of a profile and of the first model"),
    ],
)
def test_two_things_of_one_name_are_a_conflict(
    ids: list[str], aliases: list[tuple[str, str]], profiles: list[str], conflict: str | None
) -> None:
    models = [(name, f"'{place}'") for place, name in enumerate(ids)]
    assert find_conflict(models, tuple(aliases), profiles) == conflict


def test_default_means_the_first_of_a_list_that_is_usable(tmp_path: Path) -> None:
    folders = [str(make_model(tmp_path / name)) for name in ("a", "b", "c")]
    failed: set[str] = set()
    catalog = Catalog(
        tuple(folders),
        cache=tmp_path / "cache",
        default=("nowhere", "b", folders[2]),
        failed=lambda entry: entry.id in failed,
    )

    def default() -> str:
        found = catalog.find("default")
        assert isinstance(found, CatalogEntry)
        return found.id

    assert default() == "b"
    failed.add("b")
    assert default() == "c"
    failed.add("c")
    assert default() == "b"  # whose error is then the answer
