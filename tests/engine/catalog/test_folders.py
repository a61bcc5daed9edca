"""Models in folders of folders: those of one and of two levels, and folders that cannot be looked into."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import structlog

from greenroom.actors.engines.engines import Engines
from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.folders import CatalogEntry, ModelDirs
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.model_folders import make_cached, make_model


def test_folders_of_one_and_two_levels_are_listed(tmp_path: Path) -> None:
    top, cache = tmp_path / "models", tmp_path / "cache"
    flat, deep = make_model(top / "flat"), make_model(top / "lmstudio-community" / "Qwen3-4B")
    make_model(top / "a" / "b" / "too-deep")
    make_model(top / ".hidden")
    (top / "notes").mkdir()
    (make_model(top / "broken") / "config.json").write_text("{")
    alone = make_model(tmp_path / "alone")
    make_cached(cache, "org/cached")
    catalog = Catalog((str(flat),), cache=cache, model_dirs=(str(top), str(alone)))
    listed = {entry.id: entry.folder for entry in catalog.entries()}
    assert list(listed) == ["flat", "lmstudio-community/Qwen3-4B", "alone", "org/cached"]
    assert listed["lmstudio-community/Qwen3-4B"] == deep
    found = catalog.find("lmstudio-community/Qwen3-4B:latest")
    assert isinstance(found, CatalogEntry)
    assert (found.folder, found.owned_by) == (deep, "lmstudio-community")


def test_without_named_models_the_first_of_a_folder_is_the_default(tmp_path: Path) -> None:
    for name in ("b", "a"):
        make_model(tmp_path / name)
    found = Catalog(cache=tmp_path / "none", model_dirs=(str(tmp_path),)).find("default")
    assert isinstance(found, CatalogEntry)
    assert found.id == "a"


def test_a_folder_that_is_gone_unreadable_or_looping_is_one_warning(tmp_path: Path) -> None:
    top = tmp_path / "models"
    model = make_model(top / "model")
    (top / "to-itself").symlink_to(top / "to-itself")
    (top / "back").symlink_to(top)
    (top / "again").symlink_to(model)
    (tmp_path / "file").write_text("")
    dirs = ModelDirs((str(top), str(tmp_path / "gone"), str(tmp_path / "file")))
    with structlog.testing.capture_logs() as logs:
        found = [dirs.models() for _ in range(3)]
    assert [len(each) for each in found] == [1, 1, 1]
    assert [(line["log_level"], Path(line["folder"]).name) for line in logs] == [
        ("warning", "back"),
        ("warning", "gone"),
        ("warning", "file"),
    ]
    assert "leads back" in logs[0]["reason"]


def test_names_that_no_request_can_have_are_one_warning_each(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    make_model(tmp_path / "a\nb")
    if sys.platform == "linux":  # a Mac has no such names
        make_model(tmp_path / os.fsdecode(b"\xff\xfe"))
    dirs = ModelDirs((str(tmp_path),))
    with structlog.testing.capture_logs() as logs:
        assert [dirs.models(), dirs.models()] == [[("model", tmp_path / "model")]] * 2
    assert len(logs) == (2 if sys.platform == "linux" else 1)


def test_a_model_whose_files_vanish_while_they_are_described_leaves_the_others_listed(
    tmp_path: Path,
) -> None:
    for name in ("stays", "vanishes"):
        make_model(tmp_path / name)
    listed = Engines(Settings(model_dir=(str(tmp_path),)))
    assert isinstance(found := listed.describe(None), tuple)
    assert [model.id for model in found] == ["stays", "vanishes"]
    listed = Engines(Settings(model_dir=(str(tmp_path),)))
    listed.names.find("stays")
    shutil.rmtree(tmp_path / "vanishes")
    assert isinstance(found := listed.describe(None), tuple)
    assert [(model.id, model.problem is None) for model in found] == [("stays", True), ("vanishes", False)]


def test_a_folder_that_comes_or_goes_is_noticed(tmp_path: Path) -> None:
    make_model(tmp_path / "first")
    dirs = ModelDirs((str(tmp_path),))
    assert [name for name, _ in dirs.models()] == ["first"]
    make_model(tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    assert [name for name, _ in dirs.models()] == ["second"]
