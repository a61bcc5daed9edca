"""A check at load time that a model's images can be served, with one sample image.

MLX evaluates lazily: this builds the tower's graph and checks its shapes, but computes none of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.files.load_failures import failure_reason
from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.vision.image_features import ImageFeatures
from greenroom.engine.vision.prompts.image_processor import ProcessedImage
from greenroom.engine.vision.prompts.input_arrays import to_mlx
from greenroom.engine.vision.vision_language_model import VisionLanguageModel
from greenroom.schemas.problems import ProblemError

_COME_WITH_CALLS = frozenset({"_position_ids", "_rope_deltas"})
"""Model state that does not affect answers, since each call passes its positions."""


def check_sample(model: Any, sample: ProcessedImage, folder: Path) -> None:
    """Reject a model whose answers about images would fail or be wrong for every image.

    Args:
        model: A model of mlx-vlm.
        sample: An image processed by the model's processor.
        folder: The model's folder.

    Raises:
        ValueError: One sentence with the reason.
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
