"""Keys and values of one layer, quantised: what a lone sequence's cache and a batch's have in common."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

GROWTH_STEP = 256
"""Tokens for which room is made at once, as mlx-lm does: growing copies everything."""

Parts = list[mx.array]
"""Packed numbers, scales and biases of the keys, then of the values: each `[rows, heads, tokens, width]`."""

PARTS = 6

Packed = tuple[mx.array, ...]
"""Packed numbers, scales and biases, as `mx.quantized_matmul` takes them."""


class QuantizedLayer:
    """Numbers are quantised as soon as they are stored, each token by itself, in groups along a head.

    So what is kept of a token depends neither on the slice that it came in nor on its neighbours. mlx-lm's
    attention computes with what is packed when a cache has `bits` and `group_size`.

    Args:
        bits: Of each number, 4 or 8.
        group_size: Numbers that share a scale and a bias; divides the width of every head.
        used: Tokens along the third axis of `parts` that mean something; there may be room for more.
    """

    def __init__(self, bits: int, group_size: int) -> None:
        self.bits = bits
        self.group_size = group_size
        self.parts: Parts | None = None
        self.used = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Packed, Packed]:
        """Store the keys and values of new tokens `[rows, heads, tokens, width]`; returns those of all."""
        before, self.used = self.used, self.used + keys.shape[2]
        new = [*self._quantised(keys), *self._quantised(values)]
        if self.parts is None:
            self.parts = [_room(part, part.shape[0], with_room(self.used)) for part in new]
        elif self.used > self.parts[0].shape[2]:
            room = with_room(self.used) - before
            self.parts = [
                mx.concatenate([part[:, :, :before], _room(part, part.shape[0], room)], axis=2)
                for part in self.parts
            ]
        for part, added in zip(self.parts, new, strict=True):
            part[:, :, before : self.used] = added
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Packed, Packed]:
        """What is kept of all tokens."""
        assert self.parts is not None
        seen = tuple(part[:, :, : self.used] for part in self.parts)
        return seen[: PARTS // 2], seen[PARTS // 2 :]

    def size(self) -> int:
        """Tokens that it holds, padding included."""
        return self.used

    def empty(self) -> bool:
        """Whether nothing was stored yet."""
        return self.parts is None

    def is_trimmable(self) -> bool:
        """Whether the last tokens can be taken back."""
        return True

    def trim(self, count: int) -> int:
        """Take back the last tokens; returns how many."""
        count = min(self.used, count)
        self.used -= count
        return count

    @property
    def state(self) -> Parts:
        """What is to be evaluated so that nothing is pending."""
        return self.parts or []

    @property
    def nbytes(self) -> int:
        """Bytes that it occupies, room for more tokens included."""
        return sum(part.nbytes for part in self.parts or ())

    def _quantised(self, numbers: mx.array) -> Packed:
        return tuple(mx.quantize(numbers, group_size=self.group_size, bits=self.bits))


def with_room(tokens: int) -> int:
    """Tokens to make room for where so many are stored."""
    return -(-tokens // GROWTH_STEP) * GROWTH_STEP


def stacked(layers: Sequence[QuantizedLayer], rows: Sequence[int]) -> Parts | None:
    """The rows of several layers under each other, each pushed to the right as far as the longest reaches.

    Args:
        rows: How many rows each layer has; an empty one does not know.
    """
    like = next((layer.parts for layer in layers if layer.parts is not None), None)
    if like is None:
        return None
    longest = max(layer.used for layer in layers)
    whole = [_room(part, sum(rows), with_room(longest + 1)) for part in like]
    begin = 0
    for layer, count in zip(layers, rows, strict=True):
        for index, part in enumerate(layer.parts or ()):
            left = longest - layer.used
            whole[index][begin : begin + count, :, left:longest] = part[:, :, : layer.used]
        begin += count
    return whole


def _room(like: mx.array, rows: int, tokens: int) -> mx.array:
    return mx.zeros((rows, like.shape[1], tokens, like.shape[3]), dtype=like.dtype)
