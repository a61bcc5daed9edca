"""First tokens of rows in a batch with rows that have begun."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class RowStarts(nn.Module):  # type: ignore[misc]
    """RecurrentGemma's linear recurrence, which treats a sequence's first token in a way of its own.

    It recognizes a first token by the missing state. In a batch, an empty row has a state of zeros instead,
    which no state after a token equals.
    """

    def __init__(self, recurrence: Any) -> None:
        super().__init__()
        self.recurrence = recurrence

    def __call__(self, x: mx.array, cache: mx.array | None = None) -> tuple[mx.array, mx.array]:
        if cache is None:
            computed: tuple[mx.array, mx.array] = self.recurrence(x, cache)
            return computed
        begun = mx.any(cache != 0, axis=-1, keepdims=True)
        first, rest = x[:, :1], x[:, 1:]
        fresh, state = self.recurrence(first, None), self.recurrence(first, cache)
        outputs, last = mx.where(begun[:, None], state[0], fresh[0]), mx.where(begun, state[1], fresh[1])
        if rest.shape[1]:
            more, last = self.recurrence(rest, last)
            outputs = mx.concatenate([outputs, more], axis=1)
        return outputs, last
