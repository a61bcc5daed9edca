"""What a forward pass of an encoder takes beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import mlx.core as mx
from mlx.utils import tree_flatten

from greenroom.engine.catalog.files.text_config import text_config

_HIDDEN_ARRAYS = 13
_WIDE_ARRAYS = 5
_SCORE_ARRAYS = 4
_MASK_ARRAYS = 3
"""Arrays of a layer that exist at the same time, by their sizes: what three architectures took at their peaks
is 0.6 to 1.1 of this (`notes/embedding_speeds.py MODEL estimates`)."""
_FUSED_HEADS = (64, 80, 128)
"""Sizes of heads for which MLX has one kernel on GPUs that keeps no scores."""


@attrs.frozen
class PassCost:
    """Bytes of a pass over rows of a width.

    Args:
        of_token: For each token, padding included.
        of_pair: For each pair of tokens of the same row.
    """

    of_token: int
    of_pair: int

    def batch_bytes(self, rows: int, width: int, before: int = 0) -> int:
        """Return the bytes of a pass.

        Args:
            before: Tokens of each row that were computed before, and are seen from those of the pass.
        """
        return rows * width * (self.of_token + (before + width) * self.of_pair)


def pass_cost(config: Mapping[str, Any], model: Any) -> PassCost:
    """Return what passes of a model cost on this thread's device, by its config.json.

    Args:
        model: Tells by its weights how many bytes the numbers of a pass have.
    """
    sizes = {**config, **text_config(config)}
    hidden = _size(sizes, "hidden_size", 1024)
    wide = _size(sizes, "intermediate_size", 4 * hidden)
    heads = _size(sizes, "num_attention_heads", 16)
    on_gpu = mx.default_device() != mx.Device(mx.cpu)
    fused = on_gpu and _size(sizes, "head_dim", hidden // heads) in _FUSED_HEADS
    scores = 0 if fused else _SCORE_ARRAYS * heads
    tokens = _HIDDEN_ARRAYS * hidden + _WIDE_ARRAYS * wide
    itemsize = _itemsize(model)
    return PassCost(tokens * itemsize, (scores + _MASK_ARRAYS) * itemsize)


def _itemsize(model: Any) -> int:
    """Return the bytes of each number that a pass computes with."""
    types = [value.dtype for _, value in tree_flatten(model.parameters())]
    return max((dtype.size for dtype in types if mx.issubdtype(dtype, mx.floating)), default=4)


def _size(sizes: Mapping[str, Any], field: str, default: int) -> int:
    value = sizes.get(field)
    return value if isinstance(value, int) and value > 0 else default
