"""Sampling strategies, and the choice of a strategy by a row's parameters."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import mlx.core as mx

from greenroom.engine.text.sampling_parameters import SamplingParameters

STEPS_AHEAD = 8
"""Number of steps for which noise is generated at once: one large array is cheaper than many small ones."""


class ExponentialNoise:
    """Generator of exponentially distributed noise for some rows, step by step. `seeds`: seeds of the rows,
    32 bits each; `positions`: number of tokens that each row has sampled before.
    """

    def __init__(
        self, seeds: Sequence[int], positions: Sequence[int], steps_ahead: int = STEPS_AHEAD
    ) -> None:
        self._steps_ahead = steps_ahead
        self._seeds = mx.array(list(seeds), dtype=mx.uint32)
        self._positions = mx.array(list(positions), dtype=mx.uint32)
        self._steps: list[mx.array] = []

    def next(self, count: int) -> mx.array:
        """Return the next step's noise, `[rows, count]`. `count`: noise values per row; must be the same in
        every call, whatever the other rows of the batch.
        """
        if not self._steps:
            steps = self._positions[:, None] + mx.arange(self._steps_ahead, dtype=mx.uint32)
            keys = mx.stack([mx.broadcast_to(self._seeds[:, None], steps.shape), steps], axis=-1)
            uniform = mx.vmap(lambda key: mx.random.uniform(shape=(count,), key=key))(keys.reshape(-1, 2))
            noise = mx.swapaxes(-mx.log(uniform).reshape(*steps.shape, count), 0, 1)
            self._steps = [noise[step] for step in reversed(range(self._steps_ahead))]
            self._positions = self._positions + self._steps_ahead
        return self._steps.pop()


class SamplingStrategy(ABC):
    """Samples a token for each of a fixed set of rows.

    Args:
        rows: Sampling parameters of the rows.
        positions: Number of tokens that each row has sampled before.
        width: Number of top candidates that the strategy uses; 0 is all.
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


NUCLEUS_WIDTH = 256  # Number of top candidates among which the nucleus is looked for first

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


_LEAST_BLOCK = 4  # Block size in tokens below which block maxima save nothing


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


_SQUARINGS = 7
_MAX_PLAIN = 1024  # Largest row length for which one slow `exp` is faster than many vectorized operations

_BLOCK = 128
_CHUNK = 1 << 19
"""Numbers per chunk if only a reduction is needed. MLX returns the memory of larger arrays to the system
after every step, and allocating it again takes as long as the computation.
"""


def exponential(difference: mx.array, rate: mx.array | float = 1.0) -> mx.array:
    """Return e to the power of `difference * rate`, which must be at most 0; float32.

    Above -10 the relative error is below 3e-4. On a CPU MLX vectorizes products but not `exp`, so this
    computes a cubic polynomial to the power of 128, by squaring: 5 instead of 25 ms for 16 x 151,936. Other
    devices use `exp`.
    """
    if difference.shape[-1] <= _MAX_PLAIN or mx.default_device().type != mx.DeviceType.cpu:
        return mx.exp(difference * rate)
    y = difference * (rate * 2**-_SQUARINGS)
    # The cubic is monotonic, so inputs below its range become 0.
    power = mx.maximum(((y * (1 / 6) + 0.5) * y + 1) * y + 1, 0)
    for _ in range(_SQUARINGS):
        power = mx.square(power)
    return power


def row_sums(values: mx.array) -> mx.array:
    """Sum rows in two steps, `[rows, vocabulary]` → `[rows, 1]`, in half the time of one step."""
    rows, vocabulary = values.shape
    if vocabulary > 64 * _BLOCK and vocabulary % _BLOCK == 0:
        values = mx.sum(values.reshape(rows, -1, _BLOCK), axis=-1)
    return mx.sum(values, axis=-1, keepdims=True)


def log_sum_exp(logits: mx.array, largest: mx.array | None = None) -> mx.array:
    """Return the log-sum-exp of logits: `[rows, vocabulary]` → `[rows, 1]`, float32. `largest`: maximum of
    every row, `[rows, 1]`, if known.
    """
    if mx.default_device().type != mx.DeviceType.cpu:
        return mx.logsumexp(logits, axis=-1, keepdims=True)
    if largest is None:
        largest = mx.max(logits, axis=-1, keepdims=True)
    rows, vocabulary = logits.shape
    width = _BLOCK * max(1, _CHUNK // (rows * _BLOCK))
    chunks = [logits[:, start : start + width] for start in range(0, vocabulary, width)]
    sums = [row_sums(exponential(chunk - largest)) for chunk in chunks]
    total = sums[0] if len(sums) == 1 else row_sums(mx.concatenate(sums, axis=-1))
    return largest + mx.log(total)


# Weighted sampling by an exponential race (the Gumbel-max trick without its logarithms).
#
# The token with the largest ratio of weight to exponentially distributed noise wins. Sampling by cumulative
# probabilities would be sensitive to rounding: in a large vocabulary, the last bit of a logit can change the
# token. A race is robust, so a row gets the same token whatever its neighbours in the batch.


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
