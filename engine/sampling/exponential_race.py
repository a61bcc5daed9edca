"""Sampling in proportion to weights by an exponential race (the Gumbel-max trick without its logarithms).

The token with the largest weight divided by exponentially distributed noise wins. Sums of probabilities, with
which one might sample too, are so close to each other in a large vocabulary that the last bit of a logit
changes the token; a race is changed by hardly anything, so a row gets the same token beside any neighbours.
"""

from __future__ import annotations

import functools
import math

import mlx.core as mx


def sample_index(weights: mx.array, noise: mx.array) -> mx.array:
    """Return an index in proportion to `weights`: twice `[rows, candidates]` → `[rows, 1]`."""
    return mx.argmax(weights / noise, axis=-1, keepdims=True)


def noise_count(vocabulary: int) -> int:
    """Return how many numbers of noise per row it takes to sample from blocks of a vocabulary."""
    size = _block_size(vocabulary)
    return -(-vocabulary // size) + size


def sample_from_blocks(blocks: mx.array, sums: mx.array, noise: mx.array) -> tuple[mx.array, mx.array]:
    """Return an index in proportion to weights `[rows, blocks, size]`, and its weight: both `[rows, 1]`.

    A race between the blocks comes first, then one within the winner, so that little noise is needed.

    Args:
        sums: Of each block, `[rows, blocks]`.
        noise: `[rows, noise_count(vocabulary)]`.
    """
    count, size = blocks.shape[1:]
    block = sample_index(sums, noise[:, :count])
    inside = mx.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    place = sample_index(inside, noise[:, count:])
    return block * size + place, mx.take_along_axis(inside, place, axis=-1)


def split_into_blocks(weights: mx.array) -> mx.array:
    """Return weights `[rows, vocabulary]` as `[rows, blocks, size]`, the last block filled up with zeros."""
    rows, vocabulary = weights.shape
    size = _block_size(vocabulary)
    if vocabulary % size:
        weights = mx.pad(weights, [(0, 0), (0, -vocabulary % size)])
    return weights.reshape(rows, -1, size)


@functools.cache
def divisor_near(vocabulary: int, ideal: int) -> int:
    """Return a size of blocks near the ideal one: one that divides the vocabulary saves a copy."""
    near = sorted(range(max(1, ideal // 2), 2 * ideal + 1), key=lambda size: abs(size - ideal))
    return next((size for size in near if vocabulary % size == 0), max(1, ideal))


def _block_size(vocabulary: int) -> int:
    return divisor_near(vocabulary, math.isqrt(vocabulary))
