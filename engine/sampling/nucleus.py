"""Top-p (nucleus) sampling without sorting the vocabulary."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import mlx.core as mx

from greenroom.engine.sampling.exponential import exponential
from greenroom.engine.sampling.exponential_race import (
    noise_count,
    sample_from_blocks,
    sample_index,
    split_into_blocks,
)
from greenroom.engine.sampling.noise import STEPS_AHEAD
from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sampling.strategy import SamplingStrategy
from greenroom.engine.sampling.top_k import top_k_candidates

NUCLEUS_WIDTH = 256
"""Likeliest tokens among which a nucleus is looked for first."""

MAX_ATTEMPTS = 6
_RARE = 1e-4


@functools.cache
def attempts(top_p: float) -> int:
    """Return after how many attempts at sampling by rejection hardly any row is without a token."""
    mean = -math.log(top_p) if top_p else math.inf
    missing, term = 1.0, math.exp(-mean)
    for count in range(1, MAX_ATTEMPTS):
        missing -= term
        if missing < _RARE:
            return max(2, count)
        term *= mean / count
    return MAX_ATTEMPTS


class NucleusSampling(SamplingStrategy):
    """From the likeliest tokens that hold top_p together.

    A nucleus that fits into the candidates, as nearly every one does, is sampled from directly. From a larger
    one, of a nearly flat distribution, is sampled by rejection: a token counts if those above it hold less
    than top_p; if not, it is outside the nucleus, and the next attempt is among the tokens above it. How many
    attempts fail is a Poisson number with mean ln(1 / top_p). Where all of them do, one of the candidates is
    taken: no token is ever outside the nucleus, and fewer than 1 in 10,000 are sampled so from top_p = 0.5 up
    (3 in 100 with top_p = 0.1, if so small a share of the distribution is more than 256 tokens).
    """

    def __init__(
        self,
        rows: Sequence[SamplingParameters],
        positions: Sequence[int],
        width: int,
        steps_ahead: int = STEPS_AHEAD,
    ) -> None:
        super().__init__(rows, positions, width, steps_ahead)
        self._attempts = [attempts(row.top_p) for row in rows]

    def sample(self, logits: mx.array) -> mx.array:
        width, vocabulary = self._width, logits.shape[-1]
        candidates, values = top_k_candidates(logits, width)
        has_all = width == vocabulary
        noise = self._noise.next(1 + width + (0 if has_all else MAX_ATTEMPTS * noise_count(vocabulary)))
        weights = exponential(logits - values[:, :1], self._inverse_temperature)
        blocks = split_into_blocks(weights)
        sums = mx.sum(blocks, axis=-1)
        mass = self._top_p * mx.sum(sums, axis=-1, keepdims=True)
        kept = mx.take_along_axis(weights, candidates, axis=-1)
        is_open = mx.sum(kept, axis=-1, keepdims=True) < mass
        kept = kept * (mx.cumsum(kept, axis=-1, inclusive=False) < mass)
        if self._has_min_p:
            kept = kept * (kept >= self._min_p)
        if self._has_xtc:
            kept_mass = mx.sum(kept, axis=-1, keepdims=True)
            kept_mass = mx.where(is_open, mx.maximum(kept_mass, mass), kept_mass)
            limit = self._xtc_limit(kept, kept_mass, noise[:, :1])
            mass = mass - mx.sum(kept * (kept > limit), axis=-1, keepdims=True)
            kept = kept * (kept <= limit)
            blocks = blocks * (blocks <= limit[:, :, None])
            sums = mx.sum(blocks, axis=-1)
        token = mx.take_along_axis(candidates, sample_index(kept, noise[:, 1 : width + 1]), axis=-1)
        if not has_all:
            token = self._sample_beyond(blocks, sums, mass, token, is_open, noise[:, width + 1 :])
        return token[:, 0]

    def _sample_beyond(
        self,
        blocks: mx.array,
        sums: mx.array,
        mass: mx.array,
        token: mx.array,
        is_open: mx.array,
        noise: mx.array,
    ) -> mx.array:
        """Return tokens `[rows, 1]` of the nuclei that are larger than the candidates; `token` for the rest.

        Args:
            blocks: Weights `[rows, blocks, size]`.
            sums: Of each block, `[rows, blocks]`.
            mass: What a nucleus holds of them, `[rows, 1]`.
            is_open: Which rows have so large a nucleus, `[rows, 1]`.
        """
        length = noise.shape[-1] // MAX_ATTEMPTS
        allowed = mx.array(self._attempts)[:, None]
        for attempt in range(max(self._attempts)):
            window = noise[:, attempt * length : (attempt + 1) * length]
            sampled, weight = sample_from_blocks(blocks, sums, window)
            blocks = blocks * (blocks > weight[:, :, None])
            sums = mx.sum(blocks, axis=-1)
            accepted = is_open & (mx.sum(sums, axis=-1, keepdims=True) < mass) & (attempt < allowed)
            if self._has_min_p:
                accepted = accepted & (weight >= self._min_p)
            token = mx.where(accepted, sampled, token)
            is_open = is_open & ~accepted
        return token
