"""Linear layers that multiply many rows by OpenBLAS in float32, whatever the type of their weights.

MLX's packages for Linux bring a reference BLAS. Milliseconds of CPU for 64 rows times a matrix of 2048 by
2048 (AMD EPYC, mlx 0.32.4): 306 by that BLAS in float32, 120 by MLX itself in bfloat16, 269 with 4 bits;
9.4 by OpenBLAS, and 24 with 4 bits that are unpacked for it.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx import nn

from greenroom.engine.loading.devices import computes_on_cpu
from greenroom.engine.loading.libraries import MOST_UNPACKED, prefer_openblas

_FEWEST_ROWS = 8
"""Rows from which it pays to unpack a matrix; a decode step of fewer streams leaves it packed."""
_LEAST_CHUNK = 32
"""Tokens of a prompt that take no longer than four that are multiplied without it."""


def least_chunk() -> int:
    """Return the fewest tokens of a prompt that are worth a pass; 0 without OpenBLAS."""
    return _LEAST_CHUNK if computes_on_cpu() and prefer_openblas() else 0


def multiply_by_openblas(model: Any) -> None:
    """Let the linear layers of a model on the CPU multiply many rows by OpenBLAS, if it is there."""
    if not least_chunk():
        return
    for _, layer in model.named_modules():
        faster = _FASTER.get(type(layer))
        if faster is not None:
            layer.__class__ = faster


def _multiply(x: mx.array, weight: mx.array, bias: mx.array | None) -> mx.array:
    product = (x.astype(mx.float32) @ weight.astype(mx.float32).T).astype(x.dtype)
    return product if bias is None else product + bias


def _pays(x: mx.array, outputs: int) -> bool:
    return x.size >= _FEWEST_ROWS * x.shape[-1] and outputs * x.shape[-1] <= MOST_UNPACKED


class _PlainLayer(nn.Linear):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        weight = self["weight"]
        if weight.dtype == mx.float32 or not _pays(x, len(weight)):
            few: mx.array = super().__call__(x)
            return few
        return _multiply(x, weight, self.get("bias"))


class _PackedLayer(nn.QuantizedLinear):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        if not _pays(x, len(self["weight"])):
            few: mx.array = super().__call__(x)
            return few
        packing = {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}
        weight = mx.dequantize(self["weight"], self["scales"], self.get("biases"), **packing)
        return _multiply(x, weight, self.get("bias"))


_FASTER: dict[type, type] = {nn.Linear: _PlainLayer, nn.QuantizedLinear: _PackedLayer}
