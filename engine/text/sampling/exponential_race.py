"""Weighted sampling by an exponential race (the Gumbel-max trick without its logarithms).

The token with the largest ratio of weight to exponentially distributed noise wins. Sampling by cumulative
probabilities would be sensitive to rounding: in a large vocabulary, the last bit of a logit can change the
token. A race is robust, so a row gets the same token whatever its neighbours in the batch.
"""

from __future__ import annotations

import functools
import math

import mlx.core as mx


def sample_index(weights: mx.array, noise: mx.array) -> mx.array:
    """Sample an index in proportion to `weights`: two arrays `[rows, candidates]` → `[rows, 1]`."""
    return mx.argmax(weights / noise, axis=-1, keepdims=True)


def noise_count(vocabulary: int) -> int:
    """Return the noise values needed per row to sample from the blocks of a vocabulary."""
    size = _block_size(vocabulary)
    return -(-vocabulary // size) + size


def sample_from_blocks(blocks: mx.array, sums: mx.array, noise: mx.array) -> tuple[mx.array, mx.array]:
    """Sample an index in proportion to weights `[rows, blocks, size]`; return it with its weight.

    Both are `[rows, 1]`. A race between the blocks is followed by a race within the winner, which needs
    little noise.

    Args:
        sums: Sums of the blocks, `[rows, blocks]`.
        noise: Exponential noise, `[rows, noise_count(vocabulary)]`.
    """
    count, size = blocks.shape[1:]
    block = sample_index(sums, noise[:, :count])
    inside = mx.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    place = sample_index(inside, noise[:, count:])
    return block * size + place, mx.take_along_axis(inside, place, axis=-1)


def split_into_blocks(weights: mx.array) -> mx.array:
    """Reshape weights `[rows, vocabulary]` to `[rows, blocks, size]`, padding the last block with zeros."""
    rows, vocabulary = weights.shape
    size = _block_size(vocabulary)
    if vocabulary % size:
        weights = mx.pad(weights, [(0, 0), (0, -vocabulary % size)])
    return weights.reshape(rows, -1, size)


@functools.cache
def divisor_near(vocabulary: int, ideal: int) -> int:
    """Return a block size near the ideal one, preferably a divisor of the vocabulary, which saves a copy."""
    near = sorted(range(max(1, ideal // 2), 2 * ideal + 1), key=lambda size: abs(size - ideal))
    return next((size for size in near if vocabulary % size == 0), max(1, ideal))


def _block_size(vocabulary: int) -> int:
    return divisor_near(vocabulary, math.isqrt(vocabulary))
