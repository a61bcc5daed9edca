"""Loading a vision language model from its folder, with lazy weights."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from greenroom.engine.catalog.files.json_files import read_json_object
from greenroom.engine.loading.libraries import import_vision_libraries, importing
from greenroom.engine.loading.read_weights import cast_weights
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.vision.bidirectional_images import patch_image_overlay
from greenroom.engine.vision.engram_rows import gather_without_default_device
from greenroom.engine.vision.prompts.unserved_architectures import check_architecture
from greenroom.engine.vision.scaled_prompts import scale_prompts
from greenroom.engine.vision.uncompiled_attention import uncompile_attention
from greenroom.engine.vision.vision_language_model import VisionLanguageModel
from greenroom.schemas.settings.settings import Settings


def load_vision_lazily(folder: Path, settings: Settings) -> VisionLanguageModel:
    """Return a model of mlx-vlm whose weights are not evaluated yet.

    Raises:
        ValueError: One sentence about what is missing, unsupported or not trusted.
    """
    check_weight_files(folder)
    config = read_json_object(folder / "config.json")
    if config.get("model_file") and not settings.trust_remote_code:
        raise ValueError("it brings Python code of its own (model_file); allow that with trust_remote_code")
    check_architecture(str(config.get("model_type")))
    import_vision_libraries()
    from mlx_vlm.utils import get_model_and_args, load_model

    with importing():
        get_model_and_args(dict(config), folder)
        uncompile_attention()
        gather_without_default_device()
    model = load_model(folder, lazy=True)
    if not hasattr(model, "language_model") or not hasattr(model, "get_input_embeddings"):
        raise ValueError("its architecture has no language model that takes images")
    mx.eval(mx.random.state)  # Otherwise its graph keeps the initial random weights alive.
    cast_weights(model, settings)
    patch_image_overlay(model)
    scale_prompts(model)
    return VisionLanguageModel(model)
