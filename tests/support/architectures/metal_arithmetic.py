"""Emulation on a CPU of the rounding of Metal's kernels, which depends on the size of the batch.

MLX 0.32 multiplies a few rows with quantised matrices in float32. For more rows, it first rounds the weights
to the model's type (`quantized.cpp: get_qmv_batch_limit`: 12 to 33 rows, depending on the chip).
Attention over more than 8 queries rounds its probabilities. For fewer, it sums keys in 32 lanes by their
position in the cache (`sdpa_vector.h`), so padding can change the order of the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn

_FEW_QUERIES = 8
_LANES = 32

_GROUP = 32
"""Weights of a quantised matrix that share a scale."""


@contextmanager
def metal_arithmetic(row_limit: int) -> Iterator[None]:
    """Compute quantised matrices and attention with Metal's rounding.

    Args:
        row_limit: Rows of all sequences together up to which weights stay in float32.
    """

    def multiply(layer: Any, x: mx.array) -> mx.array:
        return _multiply(layer, x, row_limit)

    with (
        patch.object(nn.QuantizedLinear, "__call__", multiply),
        patch.object(mx.fast, "scaled_dot_product_attention", _attend),
    ):
        yield


def in_4_bits(model: Any) -> Any:
    """Return the model with 4-bit matrices and all other weights in bfloat16."""
    from mlx_lm.models.switch_layers import SwitchLinear

    model.set_dtype(mx.bfloat16)

    may_be_quantized = getattr(model, "quant_predicate", lambda path, layer: True)

    def is_matrix(path: str, layer: Any) -> bool:
        fits = type(layer) in (nn.Linear, SwitchLinear) and layer.weight.shape[-1] % _GROUP == 0
        return fits and may_be_quantized(path, layer) is not False

    nn.quantize(model, group_size=_GROUP, bits=4, class_predicate=is_matrix)
    return model


def _multiply(layer: Any, x: mx.array, row_limit: int) -> mx.array:
    scales, biases = (part.astype(mx.float32) for part in (layer["scales"], layer["biases"]))
    weight = mx.dequantize(layer["weight"], scales, biases, group_size=layer.group_size, bits=layer.bits)
    if x.size // x.shape[-1] > row_limit:
        weight = weight.astype(x.dtype).astype(mx.float32)
    y = (x.astype(mx.float32) @ weight.T).astype(x.dtype)
    return y + layer["bias"] if "bias" in layer else y


def _attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    rows, heads, count, _ = queries.shape
    groups, cached = keys.shape[1:3]
    grouped = queries.astype(mx.float32).reshape(rows, groups, heads // groups, count, -1)
    keys, values = (part.astype(mx.float32)[:, :, None] for part in (keys, values))
    scores = _hidden(grouped * scale @ keys.swapaxes(-1, -2), mask, (rows, heads, count, cached))
    largest = mx.max(scores, axis=-1, keepdims=True)
    if sinks is not None:
        sinks = sinks.astype(mx.float32).reshape(1, groups, heads // groups, 1, 1)
        largest = mx.maximum(largest, sinks)
    parts = mx.exp(scores - largest)
    total = _sum_lanes(parts[..., None]) if count <= _FEW_QUERIES else parts.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + mx.exp(sinks - largest)
    if count <= _FEW_QUERIES:
        attended = _sum_lanes(parts[..., None] * values[..., None, :, :]) / total
    else:
        attended = (parts / total).astype(queries.dtype).astype(mx.float32) @ values
    return attended.reshape(rows, heads, count, -1).astype(queries.dtype)


def _hidden(scores: mx.array, mask: mx.array | str | None, shape: tuple[int, ...]) -> mx.array:
    """Return attention scores `[rows, groups, heads, queries, keys]` with the mask applied."""
    if mask is None:
        return scores
    if isinstance(mask, str):
        count, cached = shape[2:]
        mask = mx.arange(cached - count, cached)[:, None] >= mx.arange(cached)
    mask = mx.broadcast_to(mask, shape).reshape(scores.shape)
    if mask.dtype == mx.bool_:
        return mx.where(mask, scores, mx.finfo(mx.float32).min)
    return scores + mask.astype(mx.float32)


def _sum_lanes(terms: mx.array) -> mx.array:
    """Return sums over the keys `[…, keys, width]`: per lane of every 32nd key first, then over the lanes."""
    missing = -terms.shape[-2] % _LANES
    padded = mx.pad(terms, [*[(0, 0)] * (terms.ndim - 2), (0, missing), (0, 0)])
    lanes = padded.reshape(*terms.shape[:-2], -1, _LANES, terms.shape[-1])
    total = lanes[..., 0, :, :]
    for turn in range(1, lanes.shape[-3]):
        total = total + lanes[..., turn, :, :]
    while (half := total.shape[-2] // 2) > 0:
        total = total[..., :half, :] + total[..., half:, :]
    return total[..., 0, :]
