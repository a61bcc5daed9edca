"""Random noise for sampling: every row has its own stream, keyed by seed and position."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

STEPS_AHEAD = 8
"""Number of steps for which noise is generated at once: one large array is cheaper than many small ones."""


class ExponentialNoise:
    """Generator of exponentially distributed noise for some rows, step by step.

    Args:
        seeds: Seeds of the rows, 32 bits each.
        positions: Number of tokens that each row has sampled before.
        steps_ahead: Number of steps for which noise is generated at once.
    """

    def __init__(
        self, seeds: Sequence[int], positions: Sequence[int], steps_ahead: int = STEPS_AHEAD
    ) -> None:
        self._steps_ahead = steps_ahead
        self._seeds = mx.array(list(seeds), dtype=mx.uint32)
        self._positions = mx.array(list(positions), dtype=mx.uint32)
        self._steps: list[mx.array] = []

    def next(self, count: int) -> mx.array:
        """Return the next step's noise, `[rows, count]`.

        Args:
            count: Noise values per row; must be the same in every call, whatever the other rows of the batch.
        """
        if not self._steps:
            steps = self._positions[:, None] + mx.arange(self._steps_ahead, dtype=mx.uint32)
            keys = mx.stack([mx.broadcast_to(self._seeds[:, None], steps.shape), steps], axis=-1)
            uniform = mx.vmap(lambda key: mx.random.uniform(shape=(count,), key=key))(keys.reshape(-1, 2))
            noise = mx.swapaxes(-mx.log(uniform).reshape(*steps.shape, count), 0, 1)
            self._steps = [noise[step] for step in reversed(range(self._steps_ahead))]
            self._positions = self._positions + self._steps_ahead
        return self._steps.pop()
