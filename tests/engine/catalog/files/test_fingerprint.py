"""A folder's fingerprint changes with its files, and with nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.catalog.model_files import fingerprint, folder_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "1_Pooling/config.json"):
        (folder / name).write_text("{}")
    return folder


def touch(folder: Path) -> None:
    os.utime(folder / "config.json", ns=(1, 1))


CHANGES: tuple[Callable[[Path], object], ...] = (
    touch,
    lambda folder: (folder / "config.json").write_text("{ }"),
    lambda folder: (folder / "chat_template.jinja").write_text("{{ x }}"),
    lambda folder: (folder / "1_Pooling" / "config.json").unlink(),
    lambda folder: (folder / "config.json").rename(folder / "other.json"),
    shutil.rmtree,
)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_shows(folder: Path, change: Callable[[Path], object]) -> None:
    before = fingerprint(folder)
    change(folder)
    assert fingerprint(folder) != before


def test_hidden_files_moves_and_links_do_not_show(folder: Path, tmp_path: Path) -> None:
    before = fingerprint(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "download").write_text("x")
    (folder / ".DS_Store").write_text("x")
    assert fingerprint(folder) == before
    moved = folder.rename(tmp_path / "moved")
    assert fingerprint(moved) == before
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("config.json", "1_Pooling"):
        (linked / name).symlink_to(moved / name)
    assert fingerprint(linked) == before


def test_a_folder_in_itself_ends(folder: Path) -> None:
    (folder / "again").symlink_to(folder)
    assert fingerprint(folder) == fingerprint(folder)


def test_links_that_lead_around_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for number in range(100):  # 100 million ways of four steps
        (tmp_path / f"link-{number}").symlink_to(tmp_path)
    assert fingerprint(tmp_path) == fingerprint(tmp_path)
    assert folder_bytes(tmp_path) >= 2
