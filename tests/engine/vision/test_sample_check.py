"""A model whose answers about images would be wrong is rejected at load, whatever its architecture."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.adapters.placeholder_expander import ImageTokens
from greenroom.engine.catalog.kinds import detect
from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.resources.account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.vision.image_encoder import ImageFeatures
from greenroom.engine.vision.image_processor import ProcessedImage
from greenroom.engine.vision.open_vision_engine import check_sample, load_vision_lazily, open_vision_engine
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder
from greenroom.tests.support.engines.vision_adapters import seeing_adapter

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
