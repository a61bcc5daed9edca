"""Random weights of tiny vision models, varied enough that answers depend on every image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.tests.support.models.tiny_vision_models import new_model

_NOISE = 0.3
"""Spread of weights that an architecture initialises to a constant."""

MOST_NUMBERS = 30_000_000
"""Largest number of weights of a tiny model. A larger model has sizes that its configuration does not set."""

_SPECIAL = re.compile(r"<[^<>]+>|\[[A-Z_]+\]")


def write_random_weights(
    folder: Path, config: Mapping[str, Any], ids: Mapping[str, int], scale: float
) -> None:
    """Write random weights for a configuration's architecture.

    Raises:
        ValueError: The model is not tiny.
    """
    import mlx.core as mx
    from mlx.utils import tree_flatten

    weights = dict(tree_flatten(new_model(config).parameters()))
    if (count := sum(value.size for value in weights.values())) > MOST_NUMBERS:
        large = max(weights, key=lambda name: weights[name].size)
        shape = " x ".join(map(str, weights[large].shape))
        detail = f"{large} is {shape}, whatever its configuration says"
        raise ValueError(f"it has {count:,} numbers: {detail}")
    for name, value in weights.items():
        if not mx.issubdtype(value.dtype, mx.floating):
            continue
        if value.ndim >= 2 and mx.all(value == value.flatten()[0]).item():
            weights[name] = mx.random.normal(value.shape, value.dtype, scale=_NOISE)
        elif value.ndim >= 2:
            weights[name] = value * scale
        elif mx.abs(value).max().item() == 0:
            weights[name] = mx.random.normal(value.shape, value.dtype, scale=_NOISE)
    if (output := next((name for name in weights if name.endswith("lm_head.weight")), None)) is not None:
        weights[output][mx.array(_special(ids, len(weights[output])))] = 0
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def _special(ids: Mapping[str, int], rows: int) -> list[int]:
    return [number for token, number in ids.items() if _SPECIAL.fullmatch(token) and number < rows]
