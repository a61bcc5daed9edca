"""Last key and value of each row, for attention layers that convolve keys and values."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class ConvolvedKeys(nn.Module):  # type: ignore[misc]
    """Baichuan M1's attention, which keeps the padded input's last key and value for every row."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        attended: mx.array
        if cache is None or cache[0].lengths is None:
            attended = self.attention(x, mask, cache)
            return attended
        states = cache[0]
        before, lengths = list(states.cache), states.lengths
        attended = self.attention(x, mask, cache)
        for index, last in enumerate(self._project(_token_before(x, lengths))):
            old = mx.zeros_like(last) if before[index] is None else before[index]
            states[index] = mx.where((lengths > 0)[:, None, None, None], last, old)
        states.advance(x.shape[1])
        return attended

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return key and value of one token of each row, `[rows, heads, 1, width]`."""
        attention = self.attention
        width = attention.num_kv_heads * attention.head_dim
        hidden = x.shape[-1]
        _, keys, values = mx.split(attention.W_pack(x), (hidden, hidden + width), axis=-1)
        shape = (len(x), attention.num_kv_heads, 1, attention.head_dim)
        return keys.reshape(shape), values.reshape(shape)


def _token_before(x: mx.array, lengths: mx.array) -> mx.array:
    """Return the last token of each row, `[rows, 1, …]`."""
    last = mx.clip(lengths - 1, 0, x.shape[1] - 1)
    return mx.take_along_axis(x, last[:, None, None], axis=1)
