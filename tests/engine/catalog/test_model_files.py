"""A folder's fingerprint changes with its files, and with nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.catalog import model_files
from greenroom.engine.catalog.description import describe
from greenroom.engine.catalog.folders import CatalogEntry
from greenroom.engine.catalog.model_files import (
    MAX_TOKENIZER_BYTES,
    check_folder,
    fingerprint,
    folder_bytes,
    open_regular,
    read_json_object,
    read_regular,
)
from greenroom.tests.support.hostile.model_folders import HOSTILE, make_hostile
from greenroom.tests.support.models.tiny_models import TinyModel


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


def test_links_into_a_cache_are_followed(tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "abc"
    blob.parent.mkdir()
    blob.write_bytes(b"{}")
    folder = tmp_path / "snapshots" / "main"
    folder.mkdir(parents=True)
    (folder / "config.json").symlink_to(os.path.relpath(blob, folder))
    check_folder(folder)
    assert read_json_object(folder / "config.json") == {}


def test_a_link_whose_file_is_gone_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    check_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "model.safetensors")


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(ValueError, match="cannot be read"):
        check_folder(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    for read in (lambda path: read_regular(path, 10), open_regular):
        with pytest.raises(ValueError, match=r"config\.json is a named pipe, not a file"):
            read(tmp_path / "config.json")


def test_what_lies_in_folders_within_is_looked_at_and_what_is_hidden_is_not(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    os.mkfifo(tmp_path / ".cache" / "lock")
    check_folder(tmp_path)
    (tmp_path / "voices").mkdir()
    os.mkfifo(tmp_path / "voices" / "alba.safetensors")
    with pytest.raises(ValueError, match="alba"):
        check_folder(tmp_path)


def test_a_file_may_have_its_limit_and_no_byte_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_regular(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match="larger"):
        read_regular(tmp_path / "a", 4)


@pytest.mark.parametrize(
    "name",
    [
        *("onnx/model.onnx_data", "rust_model.ot", "parakeet.nemo", "model.ckpt", "weights.gguf"),
        *("assets/demo.mp4", "paper.pdf", "training.tar.gz"),
    ],
)
def test_large_files_that_no_library_reads_are_no_fault(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    with (tmp_path / name).open("wb") as file:
        file.truncate(MAX_TOKENIZER_BYTES + 1)
    check_folder(tmp_path)
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(MAX_TOKENIZER_BYTES + 1)
    with pytest.raises(ValueError, match="tokenizer"):
        check_folder(tmp_path)


@pytest.mark.parametrize("name", ["vocab", "vocab.txt", "tokenizer.model", "params.json", "Merges.TXT"])
def test_large_files_that_libraries_read_whole_are_refused(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(MAX_TOKENIZER_BYTES + 1)
    with pytest.raises(ValueError, match=f"{name} is larger than 256 MiB"):
        check_folder(tmp_path)


def test_no_more_of_a_folder_is_read_than_models_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    scan = os.scandir

    def counting(path: str) -> object:
        read.append(path)
        return scan(path)

    for number in range(1_001):
        (tmp_path / f"{number}").mkdir()
    monkeypatch.setattr(os, "scandir", counting)
    with pytest.raises(ValueError, match="more than 1,000 folders"):
        check_folder(tmp_path)
    assert read == [str(tmp_path)], "those within are looked into only when they are few enough"


def test_a_folder_of_too_many_files_is_refused_without_reading_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_MOST_ENTRIES", 100)
    for number in range(150):
        (tmp_path / f".{number}").touch()
    with pytest.raises(ValueError, match="more than 100 files"):
        check_folder(tmp_path)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folders_are_described_without_waiting_for_anything(
    name: str, tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = make_hostile(name, tiny_model("qwen3"), tmp_path / "hostile")
    assert describe(CatalogEntry("hostile", folder, 0)).id == "hostile"
