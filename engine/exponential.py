"""Exponentials of whole vocabularies, which are most of what drawing a token costs on a CPU."""

from __future__ import annotations

import mlx.core as mx

_SQUARINGS = 8
_SMALLEST = -1.6
"""Just below the one zero of the cubic, so that all that is smaller becomes exactly 0."""


def exponential(x: mx.array) -> mx.array:
    """e to the power of x <= 0, float32, with a relative error below 1e-3 for x > -20 and 2e-4 for x > -10.

    (1 + y + y²/2 + y³/6) to the power of 256, with y = x / 256, by squaring. On a CPU MLX vectorises products
    but not `exp`: 7 instead of 25 ms for 16 x 151,936. Elsewhere `exp` is as good as it gets.
    """
    if mx.default_device().type != mx.DeviceType.cpu:
        return mx.exp(x)
    scale = 2**_SQUARINGS
    y = mx.maximum(x * (1 / scale), _SMALLEST)
    power = mx.maximum(((y * (1 / 6) + 0.5) * y + 1) * y + 1, 0)
    for _ in range(_SQUARINGS):
        power = mx.square(power)
    return power


def log_sum_exp(logits: mx.array) -> mx.array:
    """Logarithm of the sum of e to the power of the logits: `[rows, vocabulary]` → `[rows, 1]`, float32."""
    most = mx.max(logits, axis=-1, keepdims=True)
    return most + mx.log(mx.sum(exponential(logits - most), axis=-1, keepdims=True))
