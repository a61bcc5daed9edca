"""Tests that on a GPU nothing is computed from weights before their bytes are read."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_adapter, open_engine
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading import read_weights as file_arrays
from greenroom.engine.loading import read_weights as recorded_files
from greenroom.engine.loading.libraries import LoadAbandonedError
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.loading.read_weights import FileArrays, read_weights
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.late_disks import late_disk
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import PATIENCE

LOADERS = (
    "loading.load_model",
    "encoding.rerankers",
    "sound.speech.speech_engine",
    "sound.transcription.transcription_engine",
    "encoding.embedding_model",
)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load as if on a GPU."""
    monkeypatch.setattr(recorded_files, "computes_on_gpu", lambda: True)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Loaded models of all types."""
    models = list[Any]()

    def read_and_keep(model: Any, *others: Any) -> None:
        read_weights(model, *others)
        models.append(model)

    for loader in LOADERS:
        monkeypatch.setattr(
            importlib.import_module(f"greenroom.engine.{loader}"), "read_weights", read_and_keep
        )
    yield models
    models.clear()


def load(folder: Path, settings: Settings | None = None, **callbacks: Any) -> None:
    """Load a model of any type as a server does."""
    given = {"progress": lambda fraction: None, "is_abandoned": lambda: False, **callbacks}
    model, settings = ModelFolder(folder.name, folder, detect(folder)), settings or Settings()
    adapter = open_adapter(model, settings, "")
    engine = open_engine(model, settings, given["progress"], given["is_abandoned"], MemoryAccount(), adapter)
    engine.close()


def weights_of(model: Any) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("text:qwen3", "auto"),
        ("text:qwen3", "float16"),
        ("experts:qwen3_next", "auto"),
        ("vision:qwen2_vl", "auto"),
        ("vision:gemma3", "bfloat16"),
        ("embeddings:bert", "auto"),
        ("embeddings:gemma3_text", "auto"),
        ("rerank:xlm-roberta-rerank", "auto"),
        ("rerank:qwen3-rerank", "float16"),
        ("speech:pocket", "auto"),
        ("transcription:whisper", "auto"),
    ],
)
def test_no_evaluation_begins_before_its_bytes_are_there(
    kind: str,
    dtype: Any,
    folder_of: Callable[[str], Path],
    loaded: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, settings = folder_of(kind), Settings(dtype=dtype)
    load(folder, settings)
    disk = late_disk(folder, tmp_path / "late" / folder.name, monkeypatch)
    load(disk.folder, settings)
    expected, late = map(weights_of, loaded)
    assert expected.keys() == late.keys()
    different = [name for name, value in expected.items() if not mx.array_equal(value, late[name])]
    assert different == []
    read = {(name, offset) for name, offset, _ in disk.reads}
    assert len(read) == len(disk.reads) > 0  # nothing twice
    files = [file for file in disk.folder.rglob("*.safetensors") if file.parent.name != "voices"]
    assert {name for name, *_ in disk.reads} == {str(file.relative_to(disk.folder)) for file in files}
    assert sum(count for *_, count in disk.reads) <= sum(file.stat().st_size for file in files)


@pytest.mark.usefixtures("on_gpu")
def test_parts_that_a_model_evaluates_while_it_is_made_are_read_first(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    disk = late_disk(folder, tmp_path / "late", monkeypatch)
    name = "model.layers.1.mlp.up_proj.weight"
    with recorded_files.recorded_files() as files:
        late: Any = mx.load(str(disk.folder / "model.safetensors"))
        doubled = late[name] * 2
        mx.eval({"parts": [doubled]})
        assert len(disk.reads) == 1
        with pytest.raises(LoadAbandonedError), recorded_files.recorded_files(lambda: True):
            mx.eval(mx.load(str(disk.folder / "model.safetensors")))
        mx.eval(late["model.layers.0.mlp.up_proj.weight"])
        assert len(disk.reads) == 3
    assert files is not None
    expected: Any = mx.load(str(folder / "model.safetensors"))
    assert mx.array_equal(doubled, expected[name] * 2)


@pytest.mark.usefixtures("on_gpu")
def test_pieces_are_counted_and_the_load_can_be_abandoned_between_them(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_arrays, "PIECE_BYTES", 10_000)
    folder = tiny_model("qwen3")
    disk, reported = late_disk(folder, tmp_path / "late", monkeypatch), list[float]()
    load_model(disk.folder, Settings(), reported.append)
    assert reported == sorted(reported)
    assert reported[-1] == 1.0
    assert len(reported) > len(disk.reads) > (folder / "model.safetensors").stat().st_size // 10_000
    assert max(count for *_, count in disk.reads) == 10_000
    disk.reads.clear()
    with pytest.raises(LoadAbandonedError):
        load_model(disk.folder, Settings(), is_abandoned=lambda: len(disk.reads) == 3)
    assert len(disk.reads) == 3


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda file: os.truncate(file, file.stat().st_size - 10),
            "model.safetensors has become shorter while it was read",
        ),
        (lambda file: file.unlink(), "model.safetensors cannot be read (No such file or directory)"),
    ],
)
def test_a_file_that_changes_while_it_is_read_is_a_failure_of_the_load(
    damage: Callable[[Path], None],
    said: str,
    tiny_model: TinyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, reported = late_disk(tiny_model("qwen3"), tmp_path / "late", monkeypatch), list[float]()

    def damage_once(fraction: float) -> None:
        if not reported:
            damage(disk.folder / "model.safetensors")
        reported.append(fraction)

    with pytest.raises(ProblemError) as caught:
        load_model(disk.folder, Settings(), damage_once)
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "load_failed")
    assert said in caught.value.problem.detail
    assert 0 < reported[-1] < 1
    assert mx.load is not recorded_files._recording_load


@pytest.mark.usefixtures("on_gpu")
def test_a_disk_that_hangs_holds_up_its_own_thread_alone(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = late_disk(tiny_model("qwen3"), tmp_path / "late", monkeypatch)
    hangs, answers, ended = threading.Event(), threading.Event(), list[BaseException]()

    def hang() -> None:
        hangs.set()
        answers.wait(PATIENCE)

    disk.on_read = hang
    evaluate = mx.eval

    def load_and_end() -> None:
        try:
            load_model(disk.folder, Settings(), is_abandoned=answers.is_set)
        except BaseException as error:
            ended.append(error)
        finally:
            mx.clear_streams()

    thread = threading.Thread(target=load_and_end)
    thread.start()
    assert hangs.wait(PATIENCE)
    # Others compute and load meanwhile, and nothing of theirs is recorded or read ahead.
    mx.eval(mx.ones(3) + 1)
    other: Any = mx.load(str(tiny_model("llama") / "model.safetensors"))
    mx.eval(other)
    assert disk.reads == []
    answers.set()
    thread.join(PATIENCE)
    assert [type(error) for error in ended] == [LoadAbandonedError]
    assert len(disk.reads) == 1
    assert mx.eval is evaluate


def test_loads_on_a_cpu_stay_as_they_are(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("nothing is read ahead on a CPU")

    functions = mx.load, mx.eval
    monkeypatch.setattr(os, "pread", refuse)
    monkeypatch.setattr(FileArrays, "record", refuse)
    with recorded_files.recorded_files() as files:
        assert files is None
        assert (mx.load, mx.eval) == functions
    load_model(tiny_model("qwen3"), Settings())


@pytest.mark.usefixtures("on_gpu")
def test_graphs_in_another_form_cost_the_reading_ahead_and_nothing_else(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx, "export_to_dot", lambda file, *arrays: file.write("graph {}"))
    model = load_model(tiny_model("qwen3"), Settings())
    assert len(weights_of(model)) > 20


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("name", ["weights.npz", "array.npy"])
def test_files_of_other_forms_are_read_whole_and_once(name: str, tmp_path: Path) -> None:
    file, values = tmp_path / name, {"a": mx.arange(6.0).reshape(2, 3), "b": mx.ones(4)}
    if name.endswith("npz"):
        mx.savez(str(file), **values)
    else:
        mx.save(str(file), values["a"])
    with recorded_files.recorded_files() as files:
        loaded: Any = mx.load(str(file))
    assert files is not None
    arrays, fractions = list(loaded.values()) if isinstance(loaded, dict) else [loaded], list[float]()
    for array in arrays:
        files.read([array + 1], fractions.append)
    assert fractions == [1.0]
    assert mx.array_equal(loaded["a"] if isinstance(loaded, dict) else loaded, values["a"])


def test_bytes_that_adjoin_are_read_together_and_in_their_order(tmp_path: Path) -> None:
    values = {name: mx.full((size,), size, dtype=mx.uint8) for name, size in (("a", 30), ("b", 20), ("c", 5))}
    file = tmp_path / "model.safetensors"
    mx.save_safetensors(str(file), values)
    files, loaded, counts = FileArrays(), mx.load(str(file)), list[float]()
    assert isinstance(loaded, dict)
    files.record(file, loaded)
    files.read([loaded["b"] + loaded["a"][:20], loaded["a"]], counts.append)
    assert counts == [1.0]
    files.read([loaded["a"], loaded["b"]], counts.append)
    assert counts == [1.0]  # they are there
    files.read(loaded.values(), counts.append)
    assert counts == [1.0, 1.0]
