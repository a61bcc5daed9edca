"""The attention that replaces mlx's in training has the same values and gradients."""

from __future__ import annotations

import mlx.core as mx
import pytest

from greenroom.notes.demo_model.fast_cpu import BLOCK, attention


@pytest.mark.parametrize("length", [1, BLOCK - 1, 2 * BLOCK + 3])
def test_attention_and_its_gradient_are_those_of_mlx(length: int) -> None:
    mx.random.seed(length)
    q, k, v = (mx.random.normal((2, heads, length, 8)) for heads in (4, 2, 2))
    direction = mx.random.normal(q.shape)

    def ours(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        return (attention(q, k, v, scale=0.3) * direction).sum()

    def theirs(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        return (mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask="causal") * direction).sum()

    assert mx.allclose(ours(q, k, v), theirs(q, k, v), rtol=1e-4, atol=1e-3)
    found, right = (mx.grad(of, argnums=(0, 1, 2))(q, k, v) for of in (ours, theirs))
    for mine, expected in zip(found, right, strict=True):
        assert mx.allclose(mine, expected, rtol=1e-3, atol=1e-4)
