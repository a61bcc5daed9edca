"""Opening a vision model: the text engine over mlx-vlm's weights, with image features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.catalog.load_failures import failure_reason
from greenroom.engine.catalog.model_files import read_json_object
from greenroom.engine.loading.libraries import import_vision_libraries, importing, named_load_errors
from greenroom.engine.loading.openblas import multiply_by_openblas
from greenroom.engine.loading.read_weights import cast_weights
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.text.text_engine import TextEngine, open_text_engine
from greenroom.engine.vision.chunked_encoder import uncompile_attention
from greenroom.engine.vision.image_encoder import ImageFeatures, ImagePromptEncoder
from greenroom.engine.vision.image_processor import ProcessedImage, to_mlx
from greenroom.engine.vision.load_image_processor import check_architecture
from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.engine.vision.vision_language_model import (
    VisionLanguageModel,
    gather_without_default_device,
    patch_image_overlay,
    scale_prompts,
)
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings


def open_vision_engine(load: ModelLoad, adapter: Adapter) -> TextEngine:
    """Load a model's weights and all that generates with them, confined to this thread.

    Raises:
        ProblemError: 503 `load_failed`, also if its images cannot be served; 507: there is not enough
            memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    sample = adapter.pop_sample() if isinstance(adapter, VisionAdapter) else None

    def features_of(model: VisionLanguageModel) -> ImagePromptEncoder:
        if sample is not None:
            with named_load_errors(load.folder):
                check_sample(model.model, sample, load.folder)
        return ImagePromptEncoder(model)

    return open_text_engine(load, adapter, load_vision_lazily, features_of)


def load_vision_lazily(folder: Path, settings: Settings) -> VisionLanguageModel:
    """Return a model of mlx-vlm whose weights are not evaluated yet. Raises ValueError: one sentence about
    what is missing, unsupported or not trusted.
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
    multiply_by_openblas(model)
    patch_image_overlay(model)
    scale_prompts(model)
    return VisionLanguageModel(model)


# A check at load time that a model's images can be served, with one sample image.
#
# MLX evaluates lazily: this builds the tower's graph and checks its shapes, but computes none of it.

_COME_WITH_CALLS = frozenset({"_position_ids", "_rope_deltas"})
"""Model state that does not affect answers, since each call passes its positions."""


def check_sample(model: Any, sample: ProcessedImage, folder: Path) -> None:
    """Reject a model whose answers about images would fail or be wrong for every image. Raises ValueError:
    one sentence with the reason.
    """
    before = _state(model)
    tokens = sample.written.tokens
    ids = mx.array([list(tokens)])
    inputs = {name: to_mlx(value) for name, value in sample.inputs.items()}
    try:
        output = model.get_input_embeddings(ids, mask=mx.ones_like(ids), **inputs).to_dict()
        wrapped = VisionLanguageModel(model)
        if wrapped.has_grid_positions and any("grid" in name for name in inputs):
            wrapped.grid_positions(tokens, inputs)
    except Exception as error:  # mlx-vlm's code may raise anything.
        raise_unless_own(error)
        reason = failure_reason(error, folder)
        raise ValueError(f"mlx-vlm fails with its images ({type(error).__name__}: {reason})") from error
    after = _state(model)
    changed = sorted(name for name, value in after.items() if before.get(name) is not value)
    if hasattr(model.language_model, "get_rope_index"):
        changed = [name for name in changed if name not in _COME_WITH_CALLS]
    if changed:
        raise ValueError(
            f"mlx-vlm keeps what it has seen on the model itself ({', '.join(changed)}), where answers "
            "beside each other would take each other's images"
        )
    try:
        ImageFeatures.of(output, len(tokens))
    except ProblemError as error:
        raise ValueError(error.problem.detail.rstrip(".")) from None


def _state(model: Any) -> dict[str, Any]:
    """Return the state, by name, that a model and its language model hold besides modules and weights."""
    holders = (model, model.language_model, getattr(model.language_model, "model", None))
    return {
        name: value
        for holder in holders
        if holder is not None
        for name, value in {**vars(holder), **dict(holder)}.items()
        if name.startswith("_") and name not in ("_no_grad", "_training")
    }
