"""How rows draw their next token from adjusted logits: one class of work for each way, many rows at once.

Tokens are drawn by a race: each has a time that is exponentially distributed with the token's weight as its
rate, and the first one wins. Sums of probabilities, which would do too, are so close to each other in a large
vocabulary that the last bit of a logit changes what is drawn; a race is changed by hardly anything, so a row
draws the same beside any neighbours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import mlx.core as mx

from greenroom.engine.exponential import exponential
from greenroom.engine.row_sampling import RowSampling

NARROW, WIDE = 64, 1024
"""Likeliest tokens that are looked at for a small and for a large top_k."""

NUCLEUS = 256
"""Likeliest tokens among which a nucleus is looked for first."""

TRIES = 6


def draw_class(row: RowSampling, vocabulary: int) -> tuple[type[Draw], int]:
    """The class of work for a row, and to how many of the likeliest tokens it looks; 0 means all."""
    if row.temperature == 0:
        return Draw, 0
    if 0 < row.top_k < vocabulary:
        width = next((width for width in (NARROW, WIDE) if row.top_k <= width), 0)
        return (TopDraw, min(width, vocabulary)) if width else (SortedDraw, 0)
    return (FullDraw, 0) if row.top_p == 1 else (NucleusDraw, min(NUCLEUS, vocabulary))


class Draw:
    """The likeliest token.

    Args:
        settings: Of the rows of this class.
        positions: How many tokens each row has drawn before.
        width: To how many of the likeliest tokens it looks.
    """

    def __init__(self, settings: Sequence[RowSampling], positions: Sequence[int], width: int) -> None:
        self._width = width
        self._inverse = _column([1 / (row.temperature or 1) for row in settings])
        self._top_p = _column([row.top_p for row in settings])
        self._min_p = _column([row.min_p for row in settings])
        self._top_k = mx.array([row.top_k or 2**31 - 1 for row in settings])[:, None]
        self._has_min_p = any(row.min_p > 0 for row in settings)
        self._excludes = any(row.xtc_probability > 0 for row in settings)
        self._chance = _column([row.xtc_probability for row in settings])
        self._threshold = _column([row.xtc_threshold for row in settings])
        self._seeds = mx.array([row.seed for row in settings], dtype=mx.uint32)
        self._at = mx.array(list(positions), dtype=mx.uint32)

    def draw(self, logits: mx.array) -> mx.array:
        """Tokens `[rows]` for logits `[rows, vocabulary]`."""
        return mx.argmax(logits, axis=-1)

    def _weights(self, logits: mx.array, most: mx.array) -> mx.array:
        """Probabilities relative to that of logit `most`."""
        return exponential((logits - most) * self._inverse)

    def _uniform(self, count: int) -> mx.array:
        """Numbers in [0, 1), `[rows, count]`, from each row's own stream; once per position."""
        keys = mx.stack([self._seeds, self._at], axis=1)
        self._at = self._at + 1
        drawn: mx.array = mx.vmap(lambda key: mx.random.uniform(shape=(count,), key=key))(keys)
        return drawn

    def _excluded_above(self, weights: mx.array, mass: mx.array, uniform: mx.array) -> mx.array:
        """Weight above which xtc leaves tokens out, `[rows, 1]`; infinite where the row is spared.

        Args:
            weights: Of the tokens that the other filters have left; 0 for the rest.
            mass: Their sum.
        """
        likely = weights >= self._threshold * mass
        least = mx.min(weights + (1 - likely) * 1e30, axis=-1, keepdims=True)
        return mx.where(uniform < self._chance, least, mx.inf)


class FullDraw(Draw):
    """From the whole vocabulary, but for what min_p and xtc leave out: no sort."""

    def draw(self, logits: mx.array) -> mx.array:
        weights = self._weights(logits, mx.max(logits, axis=-1, keepdims=True))
        uniform = self._uniform(1 + race_length(logits.shape[-1]))
        if self._has_min_p:
            weights = weights * (weights >= self._min_p)
        if self._excludes:
            mass = mx.sum(weights, axis=-1, keepdims=True)
            weights = weights * (weights <= self._excluded_above(weights, mass, uniform[:, :1]))
        return race_in_blocks(weights, times(uniform[:, 1:]))[:, 0]


class TopDraw(Draw):
    """From the k likeliest."""

    def draw(self, logits: mx.array) -> mx.array:
        candidates, values = largest(logits, self._width)
        uniform = self._uniform(1 + self._width)
        kept = self._kept(values, uniform[:, :1])
        return mx.take_along_axis(candidates, race(kept, times(uniform[:, 1:])), axis=-1)[:, 0]

    def _kept(self, values: mx.array, uniform: mx.array) -> mx.array:
        """Weights of candidates whose logits fall from left to right; 0 for those that are cut off."""
        weights = self._weights(values, values[:, :1])
        weights = weights * (mx.arange(values.shape[-1])[None] < self._top_k)
        room = self._top_p * mx.sum(weights, axis=-1, keepdims=True)
        weights = weights * (mx.cumsum(weights, axis=-1, inclusive=False) < room)
        weights = weights * (weights >= self._min_p)
        if self._excludes:
            mass = mx.sum(weights, axis=-1, keepdims=True)
            weights = weights * (weights <= self._excluded_above(weights, mass, uniform))
        return weights


class SortedDraw(TopDraw):
    """From very many of the likeliest: the only class that sorts the whole vocabulary."""

    def draw(self, logits: mx.array) -> mx.array:
        candidates = mx.argsort(-logits, axis=-1)
        uniform = self._uniform(1 + race_length(logits.shape[-1]))
        kept = self._kept(mx.take_along_axis(logits, candidates, axis=-1), uniform[:, :1])
        picked = race_in_blocks(kept, times(uniform[:, 1:]))
        return mx.take_along_axis(candidates, picked, axis=-1)[:, 0]


class NucleusDraw(Draw):
    """From a nucleus, without sorting the vocabulary.

    A nucleus that fits into the likeliest tokens is drawn from directly. From a larger one, of a nearly flat
    distribution, is drawn by rejection: a draw stands if the tokens above it hold less than top_p. If not, it
    is outside the nucleus, and the next draw is from the tokens above it. How many draws fail is a Poisson
    number with mean ln(1 / top_p); if none of `TRIES` stands, one of the likeliest is taken: no draw is ever
    outside the nucleus.
    """

    def draw(self, logits: mx.array) -> mx.array:
        vocabulary = logits.shape[-1]
        candidates, values = largest(logits, self._width)
        most = values[:, :1]
        best = self._weights(values, most)
        length = race_length(vocabulary)
        uniform = self._uniform(1 + self._width + (TRIES * length if self._width < vocabulary else 0))
        weights = self._weights(logits, most) if self._width < vocabulary else best
        room = self._top_p * mx.sum(weights, axis=-1, keepdims=True)
        sum_of_best = mx.sum(best, axis=-1, keepdims=True)
        kept = best * (mx.cumsum(best, axis=-1, inclusive=False) < room)
        kept = kept * (kept >= self._min_p)
        left_out: mx.array | None = None
        if self._excludes:
            fits = mx.sum(kept, axis=-1, keepdims=True)
            mass = mx.where(sum_of_best < room, mx.maximum(fits, room), fits)
            above = self._excluded_above(kept, mass, uniform[:, :1])
            left_out = mx.sum(kept * (kept > above), axis=-1, keepdims=True)
            kept = kept * (kept <= above)
            weights = weights * (weights <= above)
            room = room - left_out
        noise = times(uniform[:, 1:])
        token = mx.take_along_axis(candidates, race(kept, noise[:, : self._width]), axis=-1)
        if self._width == vocabulary:
            return token[:, 0]
        open_yet = sum_of_best < (room if left_out is None else room + left_out)
        return self._beyond(weights, room, token, open_yet, noise[:, self._width :])[:, 0]

    def _beyond(
        self, weights: mx.array, room: mx.array, token: mx.array, open_yet: mx.array, noise: mx.array
    ) -> mx.array:
        """The draw from nuclei that are larger than the candidates; `token` for the other rows."""
        length = noise.shape[-1] // TRIES
        for attempt in range(TRIES):
            drawn = race_in_blocks(weights, noise[:, attempt * length : (attempt + 1) * length])
            weight = mx.take_along_axis(weights, drawn, axis=-1)
            weights = weights * (weights > weight)
            above = mx.sum(weights, axis=-1, keepdims=True)
            stands = open_yet & (above < room) & (weight >= self._min_p)
            token = mx.where(stands, drawn, token)
            open_yet = open_yet & ~stands
        return token


def times(uniform: mx.array) -> mx.array:
    """Exponentially distributed times for numbers in [0, 1)."""
    return -mx.log(uniform)


def race(weights: mx.array, noise: mx.array) -> mx.array:
    """Index drawn in proportion to `weights`: two times `[rows, candidates]` → `[rows, 1]`."""
    return mx.argmax(weights / noise, axis=-1, keepdims=True)


def race_length(vocabulary: int) -> int:
    """How many times `race_in_blocks` takes per row."""
    size = _block_size(vocabulary)
    return -(-vocabulary // size) + size


def race_in_blocks(weights: mx.array, noise: mx.array) -> mx.array:
    """As `race`, first between blocks of a vocabulary and then within one: few times are needed."""
    rows, vocabulary = weights.shape
    size = _block_size(vocabulary)
    if vocabulary % size:
        weights = mx.pad(weights, [(0, 0), (0, -vocabulary % size)])
    blocks = weights.reshape(rows, -1, size)
    count = blocks.shape[1]
    block = race(mx.sum(blocks, axis=-1), noise[:, :count])
    inside = mx.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    return (block * size + race(inside, noise[:, count:])).astype(mx.uint32)


@functools.cache
def _block_size(vocabulary: int) -> int:
    """About the square root; one that divides the vocabulary saves a copy."""
    root = math.isqrt(vocabulary)
    near = sorted(range(max(1, root // 2), 2 * root + 1), key=lambda size: abs(size - root))
    return next((size for size in near if vocabulary % size == 0), max(1, root))


def largest(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """Indices and values `[rows, count]` of the largest logits, falling.

    They lie in the `count` blocks with the largest maxima, so only those are partitioned: 4 instead of 22 ms
    for 64 of 16 x 151,936 on the CPU.
    """
    rows, vocabulary = logits.shape
    size = math.isqrt(vocabulary // count)
    if size >= 4:
        padding = -vocabulary % size
        blocks = mx.pad(logits, [(0, 0), (0, padding)], constant_values=mx.array(-mx.inf, logits.dtype))
        blocks = blocks.reshape(rows, -1, size)
        best = mx.argpartition(-mx.max(blocks, axis=-1), kth=count - 1, axis=-1)[:, :count]
        pool = mx.take_along_axis(blocks, best[:, :, None], axis=1).reshape(rows, -1)
        inside = mx.argpartition(-pool, kth=count - 1, axis=-1)[:, :count]
        indices = mx.take_along_axis(best, inside // size, axis=-1) * size + inside % size
    else:
        indices = mx.argpartition(-logits, kth=count - 1, axis=-1)[:, :count]
    values = mx.take_along_axis(logits, indices, axis=-1)
    order = mx.argsort(-values, axis=-1)
    return mx.take_along_axis(indices, order, axis=-1), mx.take_along_axis(values, order, axis=-1)


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]
