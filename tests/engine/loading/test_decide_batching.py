"""Tests that a model with unknown code gets a batch-invariance check when it is loaded, but only once."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import structlog

from greenroom.engine.kv_cache.caches import can_batch, new_cache, prefills_alone
from greenroom.engine.loading import batching, batching_table
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.loading.batching_table import CheckResults
from greenroom.engine.loading.load_model import load_model
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.architectures import config_of, make

TinyModel = Callable[..., Path]

ALONE = "rows are computed alone"
PROVED = "batching proved"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Isolate the test from cached results, and allow enough time for checks."""
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    monkeypatch.setattr(batching, "MIN_SECONDS", 600.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Path of the results file."""
    return tmp_path / "cache" / "greenroom" / "batching.json"


def with_own_code(folder: Path, target: Path, architecture: str) -> Path:
    """Return a copy of a model's folder that brings mlx-lm's code as its own."""
    shutil.copytree(folder, target)
    file = importlib.import_module(f"mlx_lm.models.{architecture}").__file__
    assert file is not None
    source = Path(file).read_text(encoding="utf-8")
    (target / "model.py").write_text(source.replace("from .", "from mlx_lm.models."), encoding="utf-8")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))
    return target


def loaded(
    folder: Path, on_unchecked: Callable[[BackgroundCheck], None] = lambda check: None
) -> tuple[Any, list[dict[str, Any]]]:
    """Return a model and the log lines about its batching."""
    with structlog.testing.capture_logs() as logs:
        model = load_model(folder, Settings(trust_remote_code=True), on_unchecked=on_unchecked)
    return model, [dict(line) for line in logs if line["event"] in (ALONE, PROVED)]


def test_what_the_table_knows_is_not_proved(tiny_model: TinyModel) -> None:
    model, logs = loaded(tiny_model("mamba"))
    assert not prefills_alone(model)
    assert logs == []


def test_what_the_table_forbids_is_computed_alone(tiny_model: TinyModel) -> None:
    model, logs = loaded(tiny_model("minimax_m3"))
    assert not can_batch(new_cache(model))
    (line,) = logs
    assert (line["prefill"], line["decode"], line["known_by"]) == ("alone", "alone", "table")


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, architecture: str, *, is_metal: bool = True) -> None:
    """Make models seem to compute on a GPU of that architecture."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.DeviceType.gpu))
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": architecture})
    monkeypatch.setattr(mx.metal, "is_available", lambda: is_metal)


@pytest.mark.parametrize(
    ("architecture", "device", "proves"),
    [
        ("llama", "metal", False),
        ("qwen3_next", "metal", True),
        ("qwen3_next", "cuda", False),
        ("qwen3_next", "cpu", False),
    ],
)
def test_the_table_holds_on_metal_only_for_code_without_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, device: str, proves: bool
) -> None:
    model = make(architecture)
    (tmp_path / "config.json").write_text(json.dumps(config_of(architecture)))
    if device != "cpu":
        pretend_gpu(monkeypatch, "any", is_metal=device == "metal")
    with structlog.testing.capture_logs() as logs:
        batching.decide_batching(model, tmp_path, 1.0, 0.0)
    assert [line["event"] for line in logs] == ([PROVED] if proves else [])
    assert not prefills_alone(model)


@pytest.mark.deep
def test_a_proof_holds_for_the_device_that_it_was_made_on(
    tiny_model: TinyModel, tmp_path: Path, file: Path
) -> None:
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    devices = (None, "applegpu_g16s", "applegpu_g17s")
    for expected in ([PROVED], []):
        for device in devices:
            with pytest.MonkeyPatch.context() as patch:
                if device is not None:
                    pretend_gpu(patch, device)
                assert [line["event"] for line in loaded(folder)[1]] == expected
    assert len(json.loads(file.read_text())) == len(devices)


@pytest.mark.deep
def test_what_an_earlier_release_found_wrong_is_tried_again(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    right = with_own_code(tiny_model("llama"), tmp_path / "right", "llama")
    wrong = with_own_code(tiny_model("mamba"), tmp_path / "wrong", "mamba")
    for folder in (right, wrong):
        loaded(folder)
    (key,) = [key for key, entry in json.loads(file.read_text()).items() if not entry["prefill"]]
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    assert batching_table.load_results(key).prefill is False
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    monkeypatch.setattr(batching_table, "version", lambda package: "99")
    assert batching_table.load_results(key) == CheckResults(None, True)
    assert [line["event"] for line in loaded(wrong)[1]] == [PROVED, ALONE]
    assert loaded(right)[1] == []
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    assert [line["event"] for line in loaded(wrong)[1]] == [ALONE]
    assert len(json.loads(file.read_text())) == 2


def test_code_that_a_folder_brings_is_proved(tiny_model: TinyModel, tmp_path: Path) -> None:
    model, logs = loaded(with_own_code(tiny_model("mamba"), tmp_path / "own-mamba", "mamba"))
    assert prefills_alone(model)
    assert can_batch(new_cache(model))
    assert [line["event"] for line in logs] == [PROVED, ALONE]
    assert (logs[1]["prefill"], logs[1]["decode"]) == ("alone", "together")
    # The thread that loads has bound the model's public id: its folder's name would hide that.
    assert "model" not in {*logs[0], *logs[1]}
    assert "padding moves logits" in logs[1]["reason"] or "spread apart" in logs[1]["reason"]
    model, logs = loaded(with_own_code(tiny_model("llama"), tmp_path / "own-llama", "llama"))
    assert not prefills_alone(model)
    assert [line["event"] for line in logs] == [PROVED]


def test_a_proof_is_remembered_by_the_process_and_by_the_users_cache_folder(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    folder = with_own_code(tiny_model("mamba"), tmp_path / "own", "mamba")
    assert loaded(folder)[1][0]["event"] == PROVED
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    model, logs = loaded(folder)
    assert [line["known_by"] for line in logs] == ["earlier proof"]
    assert prefills_alone(model)
    file.unlink()
    assert [line["known_by"] for line in loaded(folder)[1]] == ["earlier proof"]


def test_what_there_is_no_time_for_goes_on_in_pauses_and_at_the_next_load(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(batching, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(batching, "SHARE_OF_LOAD", 0.0)
    folder = with_own_code(tiny_model("mamba"), tmp_path / "own", "mamba")
    rests: list[BackgroundCheck] = []
    model, logs = loaded(folder, rests.append)
    assert [(line["prefill"], line["decode"], line["reason"]) for line in logs] == [
        ("alone", "alone", "not proved yet")
    ]
    assert not can_batch(new_cache(model))
    while not can_batch(new_cache(model)):
        rests[0].advance()
    assert prefills_alone(model)
    assert list(json.loads(file.read_text()).values()) == [{"decode": True}]
    monkeypatch.setattr(batching_table, "_of_this_process", {})  # another process
    model, logs = loaded(folder, rests.append)
    assert [(line["prefill"], line["decode"]) for line in logs] == [("alone", "together")]
    assert can_batch(new_cache(model))
    while rests[1].delay is not None:
        rests[1].advance()
    (entry,) = json.loads(file.read_text()).values()
    assert (entry["prefill"], entry["decode"]) == (False, True)
    assert prefills_alone(model)
    monkeypatch.setattr(batching_table, "_of_this_process", {})
    assert [line["known_by"] for line in loaded(folder, rests.append)[1]] == ["earlier proof"]
    assert len(rests) == 2


def test_what_another_process_has_found_meanwhile_counts(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(batching, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(batching, "SHARE_OF_LOAD", 0.0)
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    rests: list[BackgroundCheck] = []
    model, _ = loaded(folder, rests.append)
    while not can_batch(new_cache(model)):
        rests[0].advance()
    entries = json.loads(file.read_text())
    file.write_text(json.dumps({key: {"prefill": True, "decode": True} for key in entries}))
    assert not prefills_alone(loaded(folder, rests.append)[0])
    assert len(rests) == 1


@pytest.mark.deep
def test_other_code_or_sizes_are_proved_again(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    assert loaded(folder)[1]
    assert loaded(folder)[1] == []
    (folder / "model.py").write_text((folder / "model.py").read_text() + "\n")
    assert loaded(folder)[1]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))
    assert loaded(folder)[1]


@pytest.mark.deep
def test_a_file_of_proofs_that_is_not_ours_is_passed_over(
    tiny_model: TinyModel, tmp_path: Path, file: Path
) -> None:
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    loaded(folder)
    (key,) = json.loads(file.read_text())
    odd = [
        "{",
        "[]",
        '{"x": 1}',
        "[" * 100_000,
        "\udcff",
        json.dumps({key: {"decode": "yes"}}),
        " " * 2_000_000,
    ]
    for content in odd:
        batching_table._of_this_process.clear()
        file.write_text(content, encoding="utf-8", errors="surrogateescape")
        assert [line["event"] for line in loaded(folder)[1]] == [PROVED]
        assert json.loads(file.read_text())[key] == {"prefill": True, "decode": True}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("cache", ["a-file/x", "relative"])
def test_where_nothing_can_be_kept_the_process_remembers(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", cache if cache == "relative" else str(tmp_path / cache))
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    assert [line["event"] for line in loaded(folder)[1]] == [PROVED]
    assert loaded(folder)[1] == []
    assert not (tmp_path / "relative").exists()
