"""Loading of vision models: charging, abandoning, errors and quantization as for text models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.adapters.adapter import make_adapter
from greenroom.engine.adapters.placeholder_expander import ImageTokens
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.libraries import LoadAbandonedError, import_vision_libraries
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.loading.read_weights import weight_bytes
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.engine.vision.image_encoder import ImageFeatures
from greenroom.engine.vision.image_processor import ProcessedImage
from greenroom.engine.vision.open_vision_engine import check_sample, load_vision_lazily, open_vision_engine
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder
from greenroom.tests.support.engines.vision_adapters import seeing_adapter
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


@pytest.fixture
def copy(tiny_vision_model: TinyVisionModel, tmp_path: Path) -> Path:
    """Return a copy of a tiny model's folder, to be damaged."""
    return shutil.copytree(tiny_vision_model("qwen2_vl"), tmp_path / "broken-model")


def load(
    folder: Path,
    progress: Callable[[float], None] = lambda fraction: None,
    is_abandoned: Callable[[], bool] = lambda: False,
    dtype: Literal["auto", "float16"] = "auto",
) -> Any:
    settings = Settings(dtype=dtype)
    return load_model(folder, settings, progress, is_abandoned, load_lazily=load_vision_lazily)


def refusal(folder: Path) -> str:
    with pytest.raises(ProblemError) as caught:
        load(folder)
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "load_failed")
    return caught.value.problem.detail


def test_weights_are_charged_before_they_are_read(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    reported: list[float] = []
    account = MemoryAccount(limit=100_000)
    load = ModelLoad(folder, detect(folder), Settings(), reported.append, account=account)
    adapter = make_adapter(load.record, load_tokenizer(folder), Settings())
    with pytest.raises(ProblemError) as caught:
        open_vision_engine(load, adapter)
    assert caught.value.problem.status == 507
    assert reported == []
    assert account.statistics().weights == 0


def test_progress_rises_and_a_load_can_be_abandoned(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen3_vl")
    reported: list[float] = []
    load(folder, reported.append)
    assert reported == sorted(reported)
    assert reported[-1] == 1.0
    with pytest.raises(LoadAbandonedError):
        load(folder, lambda fraction: None, lambda: True)


def test_code_that_comes_with_a_model_is_not_run(copy: Path) -> None:
    (copy / "evil.py").write_text(f"open({str(copy / 'ran')!r}, 'w')")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_file": "evil.py"}))
    assert "trust_remote_code" in refusal(copy)
    assert not (copy / "ran").exists()


def test_models_whose_prompts_cannot_be_sliced_are_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "paligemma"}))
    assert "attend to what comes later" in refusal(copy)


def test_broken_weights_are_refused(copy: Path) -> None:
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "no whole safetensors file" in refusal(copy)
    weights.unlink()
    assert "no weights" in refusal(copy)


def test_a_missing_tensor_is_named(copy: Path) -> None:
    weights: Any = mx.load(str(copy / "model.safetensors"))
    mx.eval(weights)
    del weights["language_model.model.norm.weight"]
    mx.save_safetensors(str(copy / "model.safetensors"), weights)
    assert "language_model.model.norm.weight" in refusal(copy)


def test_weights_take_the_type_that_was_asked_for(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    whole, half = load(folder), load(folder, dtype="float16")
    assert weight_bytes(half) == weight_bytes(whole) // 2


def test_quantized_models_load(tiny_vision_model: TinyVisionModel, tmp_path: Path) -> None:
    from mlx import nn
    from mlx.utils import tree_flatten

    folder = shutil.copytree(tiny_vision_model("gemma3"), tmp_path / "quantized")
    model = load(folder).model
    nn.quantize(model.language_model, group_size=32, bits=4)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": 32, "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    loaded = load(folder)
    assert weight_bytes(loaded) < weight_bytes(load(tiny_vision_model("gemma3"))) // 2


REFUSED = {
    "deepseek_v41": "share one cache",
    "minicpmv4_7": "positions require crop grids",
    "florence2": "through an encoder",
    "llava_next": "mlx-vlm makes 160 embeddings of the 88 tokens that stand for an image",
    "granite_vision": "embeddings of the",
    "molmo": "before the whole conversation",
    "moondream2": "attend to what comes later",
    "moondream3": "attend to what comes later",
}


@pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated")
@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_answer_wrong_is_refused_at_load(name: str, tmp_path: Path) -> None:
    import_vision_libraries()
    folder = make_vision_folder(name, tmp_path / name)
    account = MemoryAccount(1 << 30, 1 << 28)
    load = ModelLoad(folder, detect(folder), Settings(), account=account)
    with pytest.raises(ProblemError) as caught:
        open_vision_engine(load, seeing_adapter(folder))
    problem = caught.value.problem
    assert (problem.status, problem.code) == (503, "load_failed")
    assert REFUSED[name] in problem.detail
    assert account.statistics().weights == 0


@pytest.mark.deep
def test_a_model_that_keeps_what_it_sees_on_itself_is_refused(tmp_path: Path) -> None:
    import_vision_libraries()
    folder = make_vision_folder("hunyuan_vl", tmp_path / "hunyuan_vl")
    config = json.loads((folder / "config.json").read_text())
    grid, patch = np.array([[1, 4, 4]]), config["vision_config"]["patch_size"]
    inputs = {"pixel_values": np.zeros((16, 3 * patch * patch), np.float32), "image_grid_thw": grid}
    written = ImageTokens("", (config["image_token_id"],) * 8, "")
    model = load_vision_lazily(folder, Settings()).model
    with pytest.raises(ValueError, match=r"keeps what it has seen on the model itself \(_position_ids\)"):
        check_sample(model, ProcessedImage(b"", written, 8, inputs), folder)


@pytest.mark.parametrize(("ones", "unsupported"), [(True, False), (False, True)])
def test_a_mask_is_unsupported_only_if_it_hides_something(ones: bool, unsupported: bool) -> None:
    mask = mx.ones((1, 3)) if ones else mx.array([[1, 1, 0]])
    output = {"inputs_embeds": mx.zeros((1, 3, 8)), "attention_mask": mask}
    with pytest.raises(ProblemError, match="attention_mask") if unsupported else nullcontext():
        assert ImageFeatures.of(output, 3).embeddings.shape == (3, 8)
