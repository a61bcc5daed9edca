"""A memory model of an encoder's forward pass."""

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
"""Number of arrays of each size that a layer holds at once.

The measured peaks of three architectures are 0.6 to 1.1 of this estimate.
"""
_FUSED_HEADS = (64, 80, 128)
"""Head sizes for which MLX has a fused GPU kernel that stores no attention scores."""


@attrs.frozen
class PassCost:
    """Memory of a pass, as a function of rows and width.

    Args:
        of_token: Bytes per token, including padding.
        of_pair: Bytes per pair of tokens in the same row.
    """

    of_token: int
    of_pair: int

    def batch_bytes(self, rows: int, width: int, before: int = 0) -> int:
        """Return the memory of a pass in bytes.

        Args:
            before: Cached tokens of each row, which the pass attends to.
        """
        return rows * width * (self.of_token + (before + width) * self.of_pair)


def pass_cost(config: Mapping[str, Any], model: Any) -> PassCost:
    """Return the memory model of a model's passes on this thread's device.

    Args:
        config: Content of config.json.
        model: The model, whose weights determine the dtype of activations.
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
    """Return the bytes per number in a pass."""
    types = [value.dtype for _, value in tree_flatten(model.parameters())]
    return max((dtype.size for dtype in types if mx.issubdtype(dtype, mx.floating)), default=4)


def _size(sizes: Mapping[str, Any], field: str, default: int) -> int:
    value = sizes.get(field)
    return value if isinstance(value, int) and value > 0 else default
