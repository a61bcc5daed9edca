"""Tests that a missing Python package is reported with the command that installs it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kinds import open_engine
from greenroom.engine.adapters.adapter import make_adapter
from greenroom.engine.catalog.kinds import detect
from greenroom.engine.catalog.load_failures import library_missing, missing_module, named_failures
from greenroom.engine.resources.account import MemoryAccount
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.engine.vision.load_image_processor import load_image_processor
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


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
