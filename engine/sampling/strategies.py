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
from typing import Any

import mlx.core as mx

from greenroom.engine.sampling.exponential import exponential, row_sums
from greenroom.engine.sampling.exponential_race import (
    in_blocks,
    is_small,
    largest,
    race,
    race_between,
    race_in_blocks,
    race_length,
    races_in_blocks,
)
from greenroom.engine.sampling.sampling_parameters import SamplingParameters

WIDTHS = (64, 256, 1024)
"""Likeliest tokens that are looked at for a small, a middling and a large top_k."""

NUCLEUS = 256
"""Likeliest tokens among which a nucleus is looked for first."""

MOST_TRIES = 6
AT_ONCE = (6, 16)
"""Tries that are made at once for a large and for a smaller top_p."""

_RARE = 1e-4
_NARROW_NUCLEUS = 0.5
"""top_p below which so few draws stand that the tries may all fail."""
AHEAD = 8
"""Steps for which random numbers are drawn at once: many small arrays cost more than one large one."""


def draw_class(row: SamplingParameters, vocabulary: int) -> tuple[type[SamplingStrategy], int, bool]:
    """The class of work for a row, the `width` of it, and whether the row stands apart.

    In a large vocabulary a pass over all tokens is dear, so rows that need more of them stand apart.
    """
    apart = not is_small(vocabulary) and (row.adjusts or row.xtc_probability > 0)
    if row.temperature == 0:
        return SamplingStrategy, 0, apart
    if 0 < row.top_k < vocabulary:
        width = next((width for width in WIDTHS if row.top_k <= width), 0)
        return (TopDraw, min(width, vocabulary), False) if width else (SortedDraw, 0, False)
    if row.top_p == 1:
        return FullDraw, 0, apart
    if is_small(vocabulary) and not row.xtc_probability:
        enough = next((count for count in AT_ONCE if tries_at_once(row.top_p) <= count), 0)
        if enough:
            return TriedDraw, enough, False
    if row.top_p >= _NARROW_NUCLEUS or vocabulary <= NUCLEUS:
        return NucleusDraw, min(NUCLEUS, vocabulary), apart
    return (SortedDraw, 0, False) if is_small(vocabulary) else (NarrowNucleusDraw, NUCLEUS, apart)


@functools.cache
def tries(top_p: float) -> int:
    """Draws of a nucleus by rejection after which hardly any row is without one."""
    mean = -math.log(top_p)
    missing, term = 1.0, math.exp(-mean)
    for count in range(1, MOST_TRIES):
        missing -= term
        if missing < _RARE:
            return max(2, count)
        term *= mean / count
    return MOST_TRIES


def tries_at_once(top_p: float) -> int:
    """As `tries`, if they do not learn from each other."""
    return math.ceil(math.log(_RARE) / math.log1p(-min(top_p, 0.999)))


class SamplingStrategy:
    """The likeliest token.

    Args:
        settings: Of the rows of this class.
        positions: How many tokens each row has drawn before.
        width: To how many of the likeliest tokens it looks (0: all), or how many tries it makes.
        ahead: Steps for which random numbers are drawn at once.
    """

    def __init__(
        self, settings: Sequence[SamplingParameters], positions: Sequence[int], width: int, ahead: int = AHEAD
    ) -> None:
        self._ahead = ahead
        self._width = width
        self._inverse = _column([1 / (row.temperature or 1) for row in settings])
        self._top_p = _column([row.top_p for row in settings])
        self._min_p = _column([row.min_p for row in settings])
        self._top_k = mx.array([row.top_k or 2**31 - 1 for row in settings])[:, None]
        self._has_top_k = any(0 < row.top_k <= width for row in settings)
        self._has_top_p = any(row.top_p < 1 for row in settings)
        self._has_min_p = any(row.min_p > 0 for row in settings)
        self._excludes = any(row.xtc_probability > 0 for row in settings)
        chances = [row.xtc_probability for row in settings]
        self._spared = _column([-math.log(chance) if chance else math.inf for chance in chances])
        self._threshold = _column([row.xtc_threshold for row in settings])
        self._seeds = mx.array([row.seed for row in settings], dtype=mx.uint32)
        self._at = mx.array(list(positions), dtype=mx.uint32)
        self._drawn: list[mx.array] = []

    def draw(self, logits: mx.array) -> mx.array:
        """Tokens `[rows]` for logits `[rows, vocabulary]`."""
        return mx.argmax(logits, axis=-1)

    def _times(self, count: int) -> mx.array:
        """Exponentially distributed numbers, `[rows, count]`, from each row's own stream, by its position.

        Args:
            count: Must depend on nothing but the class and the vocabulary.
        """
        if not self._drawn:
            steps = self._at[:, None] + mx.arange(self._ahead, dtype=mx.uint32)
            keys = mx.stack([mx.broadcast_to(self._seeds[:, None], steps.shape), steps], axis=-1)
            drawn = mx.vmap(lambda key: mx.random.uniform(shape=(count,), key=key))(keys.reshape(-1, 2))
            drawn = mx.swapaxes(-mx.log(drawn).reshape(*steps.shape, count), 0, 1)
            self._drawn = [drawn[step] for step in reversed(range(self._ahead))]
            self._at = self._at + self._ahead
        return self._drawn.pop()

    def _excluded_above(self, weights: mx.array, mass: mx.array, times: mx.array) -> mx.array:
        """Weight above which xtc leaves tokens out, `[rows, 1]`; infinite where the row is spared.

        Args:
            weights: Of the tokens that the other filters have left; 0 for the rest.
            mass: Their sum.
            times: One for each row, which decides whether it is spared.
        """
        likely = weights >= self._threshold * mass
        least = mx.min(mx.where(likely, weights, mx.inf), axis=-1, keepdims=True)
        return mx.where(times > self._spared, least, mx.inf)


class FullDraw(SamplingStrategy):
    """From the whole vocabulary, but for what min_p and xtc leave out: no sort."""

    def draw(self, logits: mx.array) -> mx.array:
        most = mx.max(logits, axis=-1, keepdims=True)
        weights = exponential(logits - most, self._inverse)
        times = self._times(1 + race_length(logits.shape[-1]))
        if self._has_min_p:
            weights = weights * (weights >= self._min_p)
        if self._excludes:
            weights = weights * (weights <= self._excluded_above(weights, row_sums(weights), times[:, :1]))
        return race_in_blocks(weights, times[:, 1:])[:, 0]


class TopDraw(SamplingStrategy):
    """From the k likeliest."""

    def draw(self, logits: mx.array) -> mx.array:
        candidates, values = largest(logits, self._width)
        times = self._times(1 + self._width)
        kept = self._kept(values, times[:, :1])
        return mx.take_along_axis(candidates, race(kept, times[:, 1:]), axis=-1)[:, 0]

    def _kept(self, values: mx.array, times: mx.array) -> mx.array:
        """Weights of candidates whose logits fall from left to right; 0 for those that are cut off."""
        weights = exponential(values - values[:, :1], self._inverse)
        if self._has_top_k:
            weights = weights * (mx.arange(values.shape[-1])[None] < self._top_k)
        if self._has_top_p:
            room = self._top_p * mx.sum(weights, axis=-1, keepdims=True)
            weights = weights * (mx.cumsum(weights, axis=-1, inclusive=False) < room)
        if self._has_min_p:
            weights = weights * (weights >= self._min_p)
        if self._excludes:
            mass = mx.sum(weights, axis=-1, keepdims=True)
            weights = weights * (weights <= self._excluded_above(weights, mass, times))
        return weights


class SortedDraw(TopDraw):
    """From very many of the likeliest: the only class that sorts the whole vocabulary."""

    def __init__(
        self, settings: Sequence[SamplingParameters], positions: Sequence[int], width: int, ahead: int = AHEAD
    ) -> None:
        super().__init__(settings, positions, width, ahead)
        self._has_top_k = True

    def draw(self, logits: mx.array) -> mx.array:
        candidates = mx.argsort(-logits, axis=-1)
        times = self._times(1 + race_length(logits.shape[-1]))
        kept = self._kept(mx.take_along_axis(logits, candidates, axis=-1), times[:, :1])
        picked = race_in_blocks(kept, times[:, 1:])
        return mx.take_along_axis(candidates, picked, axis=-1)[:, 0]


class TriedDraw(SamplingStrategy):
    """From the nucleus of a small vocabulary, where operations are dearer than passes: no candidates.

    Several tokens are drawn from all, and the first that is inside the nucleus counts: the tokens above it
    hold less than top_p. That each of them is inside is at least as probable as top_p. If none is, which is
    rare, the likeliest is taken: no draw is ever outside.
    """

    def draw(self, logits: mx.array) -> mx.array:
        rows, vocabulary = logits.shape
        weights = exponential(logits - mx.max(logits, axis=-1, keepdims=True), self._inverse)
        room = self._top_p * row_sums(weights)
        if self._has_min_p:
            weights = weights * (weights >= self._min_p)
        times = self._times(self._width * race_length(vocabulary)).reshape(rows, self._width, -1)
        drawn, weight = races_in_blocks(weights, times)
        all_weights = weights[:, None]
        inside = mx.sum(all_weights * (all_weights > weight[:, :, None]), axis=-1) < room
        first = mx.argmax(inside, axis=-1, keepdims=True)
        token = mx.take_along_axis(drawn, first, axis=-1)
        found = mx.take_along_axis(inside, first, axis=-1)
        return mx.where(found[:, 0], token[:, 0], mx.argmax(logits, axis=-1))


class NucleusDraw(SamplingStrategy):
    """From a nucleus, without sorting the vocabulary.

    A nucleus that fits into the likeliest tokens is drawn from directly. From a larger one, of a nearly flat
    distribution, is drawn by rejection: a draw stands if the tokens above it hold less than top_p. If not, it
    is outside the nucleus, and the next draw is from the tokens above it. How many draws fail is a Poisson
    number with mean ln(1 / top_p); if none of `tries` stands, one of the likeliest is taken: no draw is ever
    outside the nucleus, and fewer than 1 in 10,000 are drawn so, from top_p = 0.5 up.
    """

    _extra_races = 0

    def __init__(
        self, settings: Sequence[SamplingParameters], positions: Sequence[int], width: int, ahead: int = AHEAD
    ) -> None:
        super().__init__(settings, positions, width, ahead)
        self._tries = [tries(row.top_p) for row in settings]

    def draw(self, logits: mx.array) -> mx.array:
        width, vocabulary = self._width, logits.shape[-1]
        candidates, values = largest(logits, width)
        most = values[:, :1]
        whole = width == vocabulary
        races = 0 if whole else MOST_TRIES + self._extra_races
        times = self._times(1 + width + races * race_length(vocabulary))
        weights = exponential(logits - most, self._inverse)
        best = mx.take_along_axis(weights, candidates, axis=-1)
        blocks = in_blocks(weights)
        sums = mx.sum(blocks, axis=-1)
        room = self._top_p * mx.sum(sums, axis=-1, keepdims=True)
        open_yet = mx.sum(best, axis=-1, keepdims=True) < room
        kept = best * (mx.cumsum(best, axis=-1, inclusive=False) < room)
        if self._has_min_p:
            kept = kept * (kept >= self._min_p)
        if self._excludes:
            mass = mx.sum(kept, axis=-1, keepdims=True)
            mass = mx.where(open_yet, mx.maximum(mass, room), mass)
            above = self._excluded_above(kept, mass, times[:, :1])
            room = room - mx.sum(kept * (kept > above), axis=-1, keepdims=True)
            kept = kept * (kept <= above)
            blocks = blocks * (blocks <= above[:, :, None])
            sums = mx.sum(blocks, axis=-1)
        token = mx.take_along_axis(candidates, race(kept, times[:, 1 : width + 1]), axis=-1)
        if whole:
            return token[:, 0]
        return self._beyond(blocks, sums, room, token, open_yet, times[:, width + 1 :])[:, 0]

    def _beyond(
        self,
        blocks: mx.array,
        sums: mx.array,
        room: mx.array,
        token: mx.array,
        open_yet: mx.array,
        times: mx.array,
    ) -> mx.array:
        """The draw from nuclei that are larger than the candidates; `token` for the other rows.

        Args:
            blocks: Weights `[rows, blocks, size]`.
            sums: Of each block, `[rows, blocks]`.
        """
        length = times.shape[-1] // (MOST_TRIES + self._extra_races)
        allowed, whole = mx.array(self._tries)[:, None], blocks
        for attempt in range(max(self._tries)):
            drawn, weight = race_between(blocks, sums, times[:, attempt * length : (attempt + 1) * length])
            blocks = blocks * (blocks > weight[:, :, None])
            sums = mx.sum(blocks, axis=-1)
            stands = open_yet & (mx.sum(sums, axis=-1, keepdims=True) < room) & (attempt < allowed)
            if self._has_min_p:
                stands = stands & (weight >= self._min_p)
            token = mx.where(stands, drawn, token)
            open_yet = open_yet & ~stands
        return self._last_resort(whole, room, token, open_yet, times[:, MOST_TRIES * length :])

    def _last_resort(
        self, blocks: mx.array, room: mx.array, token: mx.array, open_yet: mx.array, times: mx.array
    ) -> mx.array:
        """The draw of rows of which no try stood."""
        return token


class NarrowNucleusDraw(NucleusDraw):
    """From a nucleus that is small in probability, of a large vocabulary.

    Where all tries fail, because the distribution is so flat that even a small share of it is very many
    tokens, the row is sorted: the only draw that waits for the model, to learn which rows those are.
    """

    _extra_races = 1

    def _last_resort(
        self, blocks: mx.array, room: mx.array, token: mx.array, open_yet: mx.array, times: mx.array
    ) -> mx.array:
        still: Any = open_yet[:, 0].tolist()
        if not any(still):
            return token
        rows = mx.array([index for index, is_open in enumerate(still) if is_open])
        weights = blocks[rows].reshape(len(rows), -1)
        order = mx.argsort(-weights, axis=-1)
        weights = mx.take_along_axis(weights, order, axis=-1)
        weights = weights * (mx.cumsum(weights, axis=-1, inclusive=False) < room[rows])
        if self._has_min_p:
            weights = weights * (weights >= self._min_p[rows])
        picked = race_in_blocks(weights, times[rows])
        token[rows] = mx.take_along_axis(order, picked, axis=-1).astype(token.dtype)
        return token


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]
