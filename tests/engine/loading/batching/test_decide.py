"""A model whose code is not in the table is proved when it is loaded, once."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from greenroom.engine.kv_cache.batching import prefills_alone
from greenroom.engine.kv_cache.caches import can_batch, new_cache
from greenroom.engine.loading.batching import decide, known
from greenroom.engine.loading.load_model import load_model
from greenroom.schemas.settings import Settings

TinyModel = Callable[..., Path]

ALONE = "rows are computed alone"
PROVED = "batching proved"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has proved nothing yet, and has time for it."""
    monkeypatch.setattr(known, "_of_this_process", {})
    monkeypatch.setattr(decide, "_SHORTEST", 600.0)


def with_own_code(folder: Path, target: Path, architecture: str) -> Path:
    """Return a copy of a model whose folder brings its own code, which is that of mlx-lm."""
    shutil.copytree(folder, target)
    file = importlib.import_module(f"mlx_lm.models.{architecture}").__file__
    assert file is not None
    source = Path(file).read_text(encoding="utf-8")
    (target / "model.py").write_text(source.replace("from .", "from mlx_lm.models."), encoding="utf-8")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))
    return target


def loaded(folder: Path, kept_in: Path | None = None) -> tuple[Any, list[dict[str, Any]]]:
    """Return a model and what was logged of its batching."""
    settings = Settings(trust_remote_code=True, prefix_cache_dir=str(kept_in) if kept_in else None)
    with structlog.testing.capture_logs() as logs:
        model = load_model(folder, settings)
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


def test_code_that_a_folder_brings_is_proved(tiny_model: TinyModel, tmp_path: Path) -> None:
    model, logs = loaded(with_own_code(tiny_model("mamba"), tmp_path / "own-mamba", "mamba"))
    assert prefills_alone(model)
    assert can_batch(new_cache(model))
    assert [line["event"] for line in logs] == [PROVED, ALONE]
    assert (logs[1]["model"], logs[1]["prefill"], logs[1]["decode"]) == ("own-mamba", "alone", "together")
    assert "padding moves logits" in logs[1]["reason"] or "spread apart" in logs[1]["reason"]
    model, logs = loaded(with_own_code(tiny_model("llama"), tmp_path / "own-llama", "llama"))
    assert not prefills_alone(model)
    assert [line["event"] for line in logs] == [PROVED]


def test_a_proof_is_remembered_by_the_process_and_by_the_operators_folder(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept_in = with_own_code(tiny_model("mamba"), tmp_path / "own", "mamba"), tmp_path / "kept"
    kept_in.mkdir()
    assert loaded(folder, kept_in)[1][0]["event"] == PROVED
    assert [line["known_by"] for line in loaded(folder)[1]] == ["earlier proof"]
    monkeypatch.setattr(known, "_of_this_process", {})
    model, logs = loaded(folder, kept_in)
    assert [line["known_by"] for line in logs] == ["earlier proof"]
    assert prefills_alone(model)


def test_other_code_or_sizes_are_proved_again(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    assert loaded(folder)[1]
    assert loaded(folder)[1] == []
    (folder / "model.py").write_text((folder / "model.py").read_text() + "\n")
    assert loaded(folder)[1]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))
    assert loaded(folder)[1]


def test_a_file_of_proofs_that_is_not_ours_is_passed_over(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = with_own_code(tiny_model("llama"), tmp_path / "own", "llama")
    file = tmp_path / "greenroom-batching.json"
    for content in ("{", "[]", '{"x": 1}'):
        known._of_this_process.clear()
        file.write_text(content)
        assert [line["event"] for line in loaded(folder, tmp_path)[1]] == [PROVED]
    assert list(json.loads(file.read_text()).values()) == [{"prefill": True, "decode": True}]
