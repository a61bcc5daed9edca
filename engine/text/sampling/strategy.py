"""Base class of sampling strategies, with row parameters as columns and their noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import mlx.core as mx

from greenroom.engine.text.sampling.noise import STEPS_AHEAD, ExponentialNoise
from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters


class SamplingStrategy(ABC):
    """Samples a token for each of a fixed set of rows.

    Args:
        rows: Sampling parameters of the rows.
        positions: Number of tokens that each row has sampled before.
        width: Number of top candidates that the strategy uses; 0 is all.
        steps_ahead: Number of steps for which noise is generated at once.
    """

    def __init__(
        self,
        rows: Sequence[SamplingParameters],
        positions: Sequence[int],
        width: int,
        steps_ahead: int = STEPS_AHEAD,
    ) -> None:
        self._width = width
        self._noise = ExponentialNoise([row.seed for row in rows], positions, steps_ahead)
        self._inverse_temperature = _column([1 / (row.temperature or 1) for row in rows])
        self._top_p = _column([row.top_p for row in rows])
        self._min_p = _column([row.min_p for row in rows])
        self._top_k = mx.array([row.top_k for row in rows])[:, None]
        self._has_top_p = any(row.top_p < 1 for row in rows)
        self._has_min_p = any(row.min_p > 0 for row in rows)
        self._has_xtc = any(row.xtc_probability > 0 for row in rows)
        chances = [row.xtc_probability for row in rows]
        self._xtc_noise = _column([-math.log(chance) if chance else math.inf for chance in chances])
        self._xtc_threshold = _column([row.xtc_threshold for row in rows])

    @abstractmethod
    def sample(self, logits: mx.array) -> mx.array:
        """Sample tokens `[rows]` (uint32) from logits `[rows, vocabulary]`; nothing is evaluated."""

    def _xtc_limit(self, weights: mx.array, mass: mx.array, noise: mx.array) -> mx.array:
        """Return the weight above which xtc excludes tokens, `[rows, 1]`; infinite if it does not apply.

        Args:
            weights: Weights of the tokens that passed the other filters; 0 for the rest.
            mass: Sum of the weights, `[rows, 1]`.
            noise: One noise value per row, `[rows, 1]`, that decides whether xtc applies.
        """
        likely = weights >= self._xtc_threshold * mass
        least = mx.min(mx.where(likely, weights, mx.inf), axis=-1, keepdims=True)
        return mx.where(noise > self._xtc_noise, least, mx.inf)


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]
