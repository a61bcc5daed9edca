"""Top-p (nucleus) sampling without sorting the vocabulary."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import mlx.core as mx

from greenroom.engine.text.sampling.exponential import exponential
from greenroom.engine.text.sampling.exponential_race import (
    noise_count,
    sample_from_blocks,
    sample_index,
    split_into_blocks,
)
from greenroom.engine.text.sampling.noise import STEPS_AHEAD
from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.text.sampling.strategy import SamplingStrategy
from greenroom.engine.text.sampling.top_k import top_k_candidates

NUCLEUS_WIDTH = 256
"""Number of top candidates among which the nucleus is looked for first."""

MAX_ATTEMPTS = 6
_RARE = 1e-4


@functools.cache
def attempts(top_p: float) -> int:
    """Return the number of rejection sampling attempts after which few rows are left without a token."""
    mean = -math.log(top_p) if top_p else math.inf
    missing, term = 1.0, math.exp(-mean)
    for count in range(1, MAX_ATTEMPTS):
        missing -= term
        if missing < _RARE:
            return max(2, count)
        term *= mean / count
    return MAX_ATTEMPTS


class NucleusSampling(SamplingStrategy):
    """Sampling from the most probable tokens that together hold the probability `top_p`.

    A nucleus that fits into the candidates, as nearly every one does, is sampled directly. A larger one, of a
    nearly flat distribution, is sampled by rejection: a token is accepted if the tokens above it hold less
    than top_p; if not, it lies outside the nucleus, and the next attempt samples among the tokens above it.
    The number of failed attempts has a Poisson distribution with mean ln(1 / top_p). If all of them fail, one
    of the candidates is taken. So no token is ever outside the nucleus, and from top_p = 0.5 up fewer than 1
    in 10,000 tokens are taken this way (3 in 100 with top_p = 0.1, if even so small a nucleus has more than
    256 tokens).
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
        """Sample by rejection for rows whose nucleus exceeds the candidates; keep `token` for the rest.

        Args:
            blocks: Weights, `[rows, blocks, size]`.
            sums: Sums of the blocks, `[rows, blocks]`.
            mass: Weight of the nucleus, `[rows, 1]`.
            is_open: Mask of the rows with a nucleus larger than the candidates, `[rows, 1]`.

        Returns:
            Tokens, `[rows, 1]`.
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
