"""Sampling strategies, and the choice of a strategy by a row's parameters."""

from __future__ import annotations

import mlx.core as mx

from greenroom.engine.text.sampling.exponential import exponential, row_sums
from greenroom.engine.text.sampling.exponential_race import (
    noise_count,
    sample_from_blocks,
    sample_index,
    split_into_blocks,
)
from greenroom.engine.text.sampling.nucleus import NUCLEUS_WIDTH, NucleusSampling
from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.text.sampling.strategy import SamplingStrategy
from greenroom.engine.text.sampling.top_k import top_k_candidates

_LEAST_WIDTH = 64
_WIDTH_FACTOR = 4
"""Growth factor of candidate counts for top_k (64, 256, 1,024, …); rows with different top_k share a pass."""

StrategyKey = tuple[type[SamplingStrategy], int, bool]
"""Strategy, number of candidates, and whether its rows' logits are expensive to prepare."""


def choose_strategy(row: SamplingParameters, vocabulary: int) -> StrategyKey:
    """Return a row's strategy key; rows with equal keys are sampled together.

    Rows with logits processors, or with xtc over all tokens, are separate from others, since each pass over a
    vocabulary is expensive.
    """
    is_dear = row.changes_logits or row.xtc_probability > 0
    if row.temperature == 0:
        return GreedySampling, 0, is_dear
    if 0 < row.top_k < vocabulary:
        return TopKSampling, min(_candidates(row.top_k), vocabulary), False
    if row.top_p < 1:
        return NucleusSampling, min(NUCLEUS_WIDTH, vocabulary), is_dear
    return FullSampling, 0, is_dear


def _candidates(top_k: int) -> int:
    width = _LEAST_WIDTH
    while width < top_k:
        width *= _WIDTH_FACTOR
    return width


class GreedySampling(SamplingStrategy):
    """Greedy choice of the most probable token."""

    def sample(self, logits: mx.array) -> mx.array:
        return mx.argmax(logits, axis=-1)


class FullSampling(SamplingStrategy):
    """Sampling from the whole vocabulary, except tokens that min_p and xtc exclude; needs no sort."""

    def sample(self, logits: mx.array) -> mx.array:
        largest = mx.max(logits, axis=-1, keepdims=True)
        weights = exponential(logits - largest, self._inverse_temperature)
        noise = self._noise.next(1 + noise_count(logits.shape[-1]))
        if self._has_min_p:
            weights = weights * (weights >= self._min_p)
        if self._has_xtc:
            weights = weights * (weights <= self._xtc_limit(weights, row_sums(weights), noise[:, :1]))
        blocks = split_into_blocks(weights)
        return sample_from_blocks(blocks, mx.sum(blocks, axis=-1), noise[:, 1:])[0][:, 0]


class TopKSampling(SamplingStrategy):
    """Sampling from the k most probable tokens."""

    def sample(self, logits: mx.array) -> mx.array:
        candidates, values = top_k_candidates(logits, self._width)
        noise = self._noise.next(1 + self._width)
        weights = exponential(values - values[:, :1], self._inverse_temperature)
        weights = weights * (mx.arange(self._width)[None] < self._top_k)
        if self._has_top_p:
            mass = self._top_p * mx.sum(weights, axis=-1, keepdims=True)
            weights = weights * (mx.cumsum(weights, axis=-1, inclusive=False) < mass)
        if self._has_min_p:
            weights = weights * (weights >= self._min_p)
        if self._has_xtc:
            limit = self._xtc_limit(weights, mx.sum(weights, axis=-1, keepdims=True), noise[:, :1])
            weights = weights * (weights <= limit)
        return mx.take_along_axis(candidates, sample_index(weights, noise[:, 1:]), axis=-1)[:, 0]
