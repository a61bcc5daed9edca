"""Folders without a model or with unsupported weights are rejected with an error that names their files."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kind_engines import open_engine
from greenroom.engine.adapters.adapter import make_adapter
from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.description import describe
from greenroom.engine.catalog.folders import why_no_model
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.load_failures import library_missing, missing_module, named_failures
from greenroom.engine.catalog.model_files import check_tokenizer_files
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.engine.vision.load_image_processor import load_image_processor
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

ADAPTER = "it holds an adapter (adapters.safetensors), which needs the model that it was trained for"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "its folder is empty: there is no config.json"),
        (("README.md",), "there is no config.json in its folder"),
        (
            ("q4.gguf", "README.md"),
            "there is no config.json in its folder; it holds GGUF (q4.gguf), which Greenroom does not read",
        ),
        (
            ("adapter_config.json", "adapters.safetensors"),
            f"there is no config.json in its folder; {ADAPTER}",
        ),
        (("model_index.json",), "it is a pipeline of diffusers (model_index.json), which is not served here"),
        (("training_args.bin",), "there is no config.json in its folder"),
        (
            (f"\x1b[2J{'x' * 200}.gguf",),
            "there is no config.json in its folder; it holds GGUF (?[2J"
            f"{'x' * 75}…), which Greenroom does not read",
        ),
    ],
)
def test_a_folder_without_a_model_is_named_by_what_it_holds(
    folder: Path, files: tuple[str, ...], why: str
) -> None:
    for name in files:
        (folder / name).touch()
    with pytest.raises(ProblemError) as refused:
        detect(folder)
    assert refused.value.problem.detail == f"The model 'm' could not be loaded: {why}."
    assert why_no_model(str(folder)) == f"'{folder}' holds no model: {why}"
    [entry] = Catalog((str(folder),), cache=folder / "none").entries()
    assert describe(entry).problem == refused.value.problem, "it is listed as unusable, with the reason"


@pytest.mark.parametrize(
    ("file", "holds"),
    [
        ("model.gguf", "; it holds GGUF (model.gguf), which Greenroom does not read"),
        ("weights.npz", "; it holds NumPy arrays (weights.npz), which Greenroom does not read"),
        (
            "pytorch_model.bin",
            "; it holds PyTorch's weights (pytorch_model.bin), which Greenroom does not read",
        ),
        ("vocab.txt", ""),
    ],
)
def test_weights_that_are_not_read_are_named(folder: Path, file: str, holds: str) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / file).touch()
    with pytest.raises(ValueError, match="no weights") as refused:
        check_weight_files(folder)
    assert str(refused.value) == f"there are no weights (model*.safetensors) in its folder{holds}"


def test_names_that_mean_no_folder_are_told_apart(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "q4.gguf").touch()
    assert why_no_model(str(tmp_path / "q4.gguf")) == (
        f"'{tmp_path}/q4.gguf' is a file, and a model is a folder with a config.json"
    )
    assert why_no_model("mlx-community") == (
        "there is no folder 'mlx-community' with a config.json (a hub id is OWNER/NAME)"
    )
    assert why_no_model("./nowhere") == "there is no folder './nowhere' with a config.json"
    assert why_no_model("mlx-community/Qwen3-4B-4bit") is None
    (folder / "config.json").touch()
    assert why_no_model(str(folder)) is None


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "spiece.model", "qwen.tiktoken", "vocab.txt", "tekken.json"]
)
def test_a_tokenizer_is_known_by_its_name(folder: Path, name: str) -> None:
    (folder / "model.safetensors").touch()
    with pytest.raises(ValueError, match="there is no tokenizer in its folder"):
        check_tokenizer_files(folder)
    (folder / name).touch()
    check_tokenizer_files(folder)


@pytest.fixture
def janus(tmp_path: Path, tiny_vision_model: TinyVisionModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a vision architecture whose code imports OpenCV, which is not installed."""
    for name in [name for name in sys.modules if name.startswith("mlx_vlm.models.multi_modality")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cv2", None)
    folder = shutil.copytree(tiny_vision_model("qwen2_vl"), tmp_path / "janus")
    (folder / "config.json").write_text(json.dumps({"model_type": "multi_modality", "vision_config": {}}))
    return folder


def check(problem: Problem) -> None:
    assert (problem.status, problem.code, problem.param) == (501, "library_missing", "model")
    assert problem.detail == (
        "'janus' needs the Python package cv2, which is not installed. "
        "Install it with: pip install opencv-python"
    )


def test_its_weights_are_not_loaded(janus: Path) -> None:
    model = ModelFolder("janus", janus, detect(janus))
    assert model.record.model_type == "vision"
    adapter = make_adapter(model.record, load_tokenizer(janus), Settings())
    with pytest.raises(ProblemError) as caught:
        open_engine(model, Settings(), lambda fraction: None, lambda: False, MemoryAccount(None), adapter)
    check(caught.value.problem)


def test_its_processor_is_not_loaded(janus: Path) -> None:
    from greenroom.engine.loading.libraries import import_vision_libraries

    import_vision_libraries()
    with pytest.raises(ProblemError) as caught:
        load_image_processor(janus, "multi_modality", None, name="janus")  # type: ignore[arg-type]
    check(caught.value.problem)


def test_an_error_that_a_missing_package_led_to_counts() -> None:
    def leave() -> None:
        try:
            raise ModuleNotFoundError("No module named 'hf_olmo'", name="hf_olmo.model")
        except ImportError:
            raise SystemExit(1) from None

    with pytest.raises(ProblemError) as caught, named_failures(Path("m"), "org/m"):
        leave()
    assert caught.value.problem == library_missing("org/m", "hf_olmo")
    assert "pip install ai2-olmo" in caught.value.problem.detail


def test_an_architecture_that_a_library_does_not_know_is_no_missing_package() -> None:
    assert missing_module(ModuleNotFoundError("no", name="mlx_lm.models.no_such")) == ""
    assert missing_module(ImportError("cannot import name")) == ""
    with pytest.raises(ProblemError) as caught, named_failures(Path("m"), "m"):
        raise ModuleNotFoundError("no architecture of that name", name="mlx_vlm.models.no_such")
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "load_failed")
