"""Draw one token for every row of a batch, each by its own settings, in a handful of array operations.

Filters apply in the order for which models' published settings are tuned (Hugging Face's): temperature, then
top_k, top_p of what is left, and min_p. Rows that need nothing pay nothing: rows are sorted into classes of
work, and each class is computed for its rows only. Every row draws from a random stream of its own, keyed by
its seed and its position, so that its neighbours cannot change what it draws.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence

import attrs
import mlx.core as mx

from greenroom.schemas.generation import GenerationParameters

_NUCLEUS = 1024
"""Likeliest tokens among which a nucleus is looked for first."""

_TRIES = 6


@attrs.frozen
class RowSampling:
    """How the tokens of one row are drawn.

    Args:
        temperature: 0 is greedy.
        top_p: Nucleus; 1 is off.
        top_k: Likeliest tokens to choose from; 0 is off.
        min_p: Least probability, relative to the likeliest token's; 0 is off.
        seed: 32 bits that key the row's random stream.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = attrs.field(factory=lambda: secrets.randbits(32))

    @classmethod
    def of(cls, parameters: GenerationParameters, seed: int | None = None) -> RowSampling:
        """The settings of a request; without a seed, nobody can repeat its draws."""
        bits = secrets.randbits(32) if seed is None else fold_seed(seed)
        return cls(parameters.temperature, parameters.top_p, parameters.top_k, parameters.min_p, bits)


def fold_seed(seed: int) -> int:
    """A client's seed of any size as 32 well-mixed bits."""
    return int.from_bytes(hashlib.blake2s(str(seed).encode(), digest_size=4).digest(), "little")


class Sampler:
    """Draws for a fixed set of rows; made anew when rows join or leave.

    Args:
        rows: Settings by row.
        positions: How many tokens each row has drawn before.
    """

    IDLE = RowSampling(seed=0)
    """Settings of a row whose token nobody will read."""

    def __init__(self, rows: Sequence[RowSampling], positions: Sequence[int]) -> None:
        self._rows = tuple(rows)
        self._positions = list(positions)
        self._classes: list[_Draw] | None = None
        self._order: mx.array | None = None
        self.greedy = all(row.temperature == 0 for row in rows)

    def __call__(self, logits: mx.array) -> mx.array:
        """Tokens `[rows]` (uint32) for logits `[rows, vocabulary]`; nothing is evaluated."""
        if self.greedy:
            return mx.argmax(logits, axis=-1)
        if self._classes is None:
            self._classify(logits.shape[-1])
        classes = self._classes or []
        if len(classes) == 1:
            return classes[0].draw(logits)
        drawn = [draw.draw(logits[draw.rows]) for draw in classes]
        return mx.concatenate(drawn)[self._order]

    def _classify(self, vocabulary: int) -> None:
        """Sort the rows into classes of work."""
        members: dict[type[_Draw], list[int]] = {}
        for index, row in enumerate(self._rows):
            members.setdefault(_class_of(row, vocabulary), []).append(index)
        self._classes = [
            kind([self._rows[i] for i in rows], [self._positions[i] for i in rows], rows)
            for kind, rows in members.items()
        ]
        order = [index for rows in members.values() for index in rows]
        self._order = mx.argsort(mx.array(order))


def _class_of(row: RowSampling, vocabulary: int) -> type[_Draw]:
    if row.temperature == 0:
        return _Draw
    if 0 < row.top_k <= vocabulary // 2:
        return _TopDraw
    if row.top_p == 1 and not 0 < row.top_k < vocabulary:
        return _FullDraw
    return _NucleusDraw if vocabulary > 4 * _NUCLEUS and row.top_k == 0 else _SortedDraw


class _Draw:
    """The likeliest token: greedy rows among others."""

    def __init__(
        self, settings: Sequence[RowSampling], positions: Sequence[int], rows: Sequence[int]
    ) -> None:
        self.rows = mx.array(list(rows))
        self._temperature = mx.array([row.temperature for row in settings])[:, None]
        self._top_p = mx.array([row.top_p for row in settings])[:, None]
        self._min_p = mx.array([row.min_p for row in settings])[:, None]
        self._top_k = mx.array([row.top_k or 2**31 - 1 for row in settings])[:, None]
        self._most = max(row.top_k for row in settings)
        self._has_min_p = any(row.min_p > 0 for row in settings)
        self._seeds = mx.array([row.seed for row in settings], dtype=mx.uint32)
        self._at = mx.array(list(positions), dtype=mx.uint32)

    def draw(self, logits: mx.array) -> mx.array:
        """Tokens `[rows]` for the logits of this class's rows."""
        return mx.argmax(logits, axis=-1)

    def _tempered(self, logits: mx.array) -> mx.array:
        return logits.astype(mx.float32) / self._temperature

    def _uniform(self, count: int = 1) -> mx.array:
        """Numbers in [0, 1), `[rows, count]`, from each row's own stream; once per position."""
        keys = mx.stack([self._seeds, self._at], axis=1)
        self._at = self._at + 1
        drawn: mx.array = mx.vmap(lambda key: mx.random.uniform(shape=(count,), key=key))(keys)
        return drawn


class _FullDraw(_Draw):
    """From the whole vocabulary, but for what min_p cuts off: no sort."""

    def draw(self, logits: mx.array) -> mx.array:
        weights = mx.softmax(self._tempered(logits), axis=-1)
        if self._has_min_p:
            least = self._min_p * mx.max(weights, axis=-1, keepdims=True)
            weights = mx.where(weights >= least, weights, 0)
        return _pick(weights, self._uniform())[:, 0]


class _TopDraw(_Draw):
    """From the k likeliest."""

    def draw(self, logits: mx.array) -> mx.array:
        candidates, values = largest(logits, self._most)
        return self._nucleus(candidates, values)

    def _nucleus(self, candidates: mx.array, values: mx.array) -> mx.array:
        """Draw from candidates `[rows, k]` whose logits fall from left to right."""
        beyond = mx.arange(values.shape[-1])[None] >= self._top_k
        weights = mx.softmax(mx.where(beyond, -mx.inf, self._tempered(values)), axis=-1)
        mass_before = mx.cumsum(weights, axis=-1, inclusive=False)
        kept = (mass_before < self._top_p) & (weights >= self._min_p * weights[:, :1])
        picked = _pick(mx.where(kept, weights, 0), self._uniform())
        return mx.take_along_axis(candidates, picked, axis=-1)[:, 0]


class _SortedDraw(_TopDraw):
    """From a nucleus of any size in a small vocabulary: the only class that sorts all of it."""

    def draw(self, logits: mx.array) -> mx.array:
        candidates = mx.argsort(-logits, axis=-1)
        return self._nucleus(candidates, mx.take_along_axis(logits, candidates, axis=-1))


class _NucleusDraw(_Draw):
    """From a nucleus in a large vocabulary, without sorting it.

    A nucleus that fits into the likeliest `_NUCLEUS` tokens is drawn from exactly. A larger one, of a nearly
    flat distribution, is drawn from by rejection: a draw stands if the tokens above it hold less than top_p.
    If not, it is outside the nucleus, and the next draw is from the tokens above it. Each try halves what is
    too much; if none of `_TRIES` stands, one of the likeliest is taken: no draw is ever outside the nucleus.
    """

    def draw(self, logits: mx.array) -> mx.array:
        values = self._tempered(logits)
        weights = mx.exp(values - mx.max(values, axis=-1, keepdims=True))
        total = mx.sum(weights, axis=-1, keepdims=True)
        room = self._top_p * total
        uniform = self._uniform(_TRIES + 1)
        candidates, best = largest(values, _NUCLEUS)
        best = mx.exp(best - best[:, :1])
        kept = (mx.cumsum(best, axis=-1, inclusive=False) < room) & (best >= self._min_p)
        picked = _pick(mx.where(kept, best, 0), uniform[:, :1])
        token = mx.take_along_axis(candidates, picked, axis=-1)
        open_yet = mx.sum(best, axis=-1, keepdims=True) < room
        for attempt in range(_TRIES):
            drawn = _pick(weights, uniform[:, attempt + 1 : attempt + 2])
            weight = mx.take_along_axis(weights, drawn, axis=-1)
            weights = (weights > weight) * weights
            above = mx.sum(weights, axis=-1, keepdims=True)
            stands = open_yet & (above < room) & (weight >= self._min_p)
            token = mx.where(stands, drawn, token)
            open_yet = open_yet & ~stands
        return token[:, 0]


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


def _pick(weights: mx.array, uniform: mx.array) -> mx.array:
    """Index drawn in proportion to `weights`: `[rows, candidates]`, `[rows, 1]` → `[rows, 1]`."""
    cumulative = mx.cumsum(weights, axis=-1)
    picked = mx.sum(cumulative <= uniform * cumulative[:, -1:], axis=-1, keepdims=True)
    # Rounding can put the threshold on the very end, behind the last candidate that has any weight.
    last = mx.sum(cumulative < cumulative[:, -1:], axis=-1, keepdims=True)
    return mx.minimum(picked, last).astype(mx.uint32)
