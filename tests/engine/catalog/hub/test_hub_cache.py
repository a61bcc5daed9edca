"""Tests of the lookup of models in the hub's cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.hub.hub_cache import find_cached_model, hub_cache_folder
from greenroom.tests.support.models.model_folders import make_cached


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
