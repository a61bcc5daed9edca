"""Attention and activation for training on a CPU, where mlx's own spend most of the time of a step.

mlx's exp is scalar on a CPU, while 2**x is vectorized and as exact. Attention goes over blocks of queries,
each with the keys that it may see, and its gradient is written out, so that few passes go over the square
of scores. Scores need no maximum taken away: queries and keys are normalized in a qwen3 model.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models import qwen3

LOG2_E = 1.4426950408889634
BLOCK = 128


def use_fast_cpu_operations() -> None:
    """Put them in the place of mlx's own for the rest of the process."""
    qwen3.scaled_dot_product_attention = attention
    qwen3.swiglu = lambda gate, x: gate / (1 + mx.power(mx.array(2.0), gate * -LOG2_E)) * x


def attention(q: mx.array, k: mx.array, v: mx.array, scale: float, **_: Any) -> mx.array:
    """Return causal attention, shape (rows, heads, length, width); keys and values may have fewer heads."""
    groups = q.shape[1] // k.shape[1]
    keys, values = mx.repeat(k, groups, axis=1), mx.repeat(v, groups, axis=1)
    answer: mx.array = _attend(q * (scale * LOG2_E), keys, values)[0]
    return answer


def _forward(q: mx.array, k: mx.array, v: mx.array) -> tuple[mx.array, ...]:
    """Return attention of scaled queries, the sums of its weights, and the weights, block by block."""
    answers, sums, blocks = [], [], []
    for begin in range(0, q.shape[2], BLOCK):
        end = min(begin + BLOCK, q.shape[2])
        seen = mx.tril(mx.ones((end - begin, end)), begin)
        weights = mx.power(mx.array(2.0), q[:, :, begin:end] @ k[:, :, :end].swapaxes(-1, -2)) * seen
        blocks.append(weights)
        sums.append(weights.sum(-1, keepdims=True))
        answers.append((weights @ v[:, :, :end]) / sums[-1])
    return mx.concatenate(answers, axis=2), mx.concatenate(sums, axis=2), *blocks


def _backward(
    primals: tuple[mx.array, mx.array, mx.array],
    cotangents: tuple[mx.array, ...],
    outputs: tuple[mx.array, ...],
) -> tuple[mx.array, mx.array, mx.array]:
    q, k, v = primals
    answer, sums, *blocks = outputs
    gradient = cotangents[0] / sums
    along = (gradient * answer).sum(-1, keepdims=True)
    of_q, of_k, of_v = [], mx.zeros_like(k), mx.zeros_like(v)
    for n, weights in enumerate(blocks):
        begin, end = n * BLOCK, weights.shape[-1]
        above = gradient[:, :, begin:end]
        of_scores = (above @ v[:, :, :end].swapaxes(-1, -2) - along[:, :, begin:end]) * weights
        of_q.append(of_scores @ k[:, :, :end])
        of_k = of_k.at[:, :, :end].add(of_scores.swapaxes(-1, -2) @ q[:, :, begin:end])
        of_v = of_v.at[:, :, :end].add(weights.swapaxes(-1, -2) @ above)
    natural = 1 / LOG2_E
    return mx.concatenate(of_q, axis=2) * natural, of_k * natural, of_v


_attend: Any = mx.custom_function(_forward)
_attend.vjp(_backward)
