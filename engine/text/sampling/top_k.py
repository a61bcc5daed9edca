"""Selection of the largest logits of a vocabulary without sorting it."""

from __future__ import annotations

import math

import mlx.core as mx

from greenroom.engine.text.sampling.exponential_race import divisor_near

_LEAST_BLOCK = 4
"""Block size in tokens below which block maxima save nothing."""


def top_k_candidates(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """Return indices and values `[rows, count]` of the largest logits `[rows, vocabulary]`, in falling order.

    They lie in the `count` blocks with the largest maxima, so only those are partitioned: 4 instead of 22 ms
    for 64 of 16 x 151,936 on the CPU.
    """
    rows, vocabulary = logits.shape
    size = divisor_near(vocabulary, math.isqrt(vocabulary // count))
    if size >= _LEAST_BLOCK:
        if vocabulary % size:
            padding = [(0, 0), (0, -vocabulary % size)]
            logits = mx.pad(logits, padding, constant_values=mx.array(-mx.inf, logits.dtype))
        blocks = logits.reshape(rows, -1, size)
        best = mx.argpartition(-mx.max(blocks, axis=-1), kth=count - 1, axis=-1)[:, :count]
        pool = mx.take_along_axis(blocks, best[:, :, None], axis=1).reshape(rows, -1)
        inside = mx.argpartition(-pool, kth=count - 1, axis=-1)[:, :count]
        indices = mx.take_along_axis(best, inside // size, axis=-1) * size + inside % size
    else:
        indices = mx.argpartition(-logits, kth=count - 1, axis=-1)[:, :count]
    values = mx.take_along_axis(logits, indices, axis=-1)
    order = mx.argsort(-values, axis=-1)
    return mx.take_along_axis(indices, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
