"""Quantized keys and values of one layer, shared by the caches of single sequences and batches."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from greenroom.engine.kv_cache.growth import allocated_tokens

KVTensors = list[mx.array]
"""Packed numbers, scales and biases of the keys, then of the values; each `[rows, heads, tokens, width]`."""

TENSORS_PER_LAYER = 6

Packed = tuple[mx.array, ...]
"""Packed numbers, scales and biases, as `mx.quantized_matmul` takes them."""


class QuantizedLayer:
    """A layer that quantizes each token when it is stored, in groups along a head.

    So a token's stored form depends neither on its prefill chunk nor on other tokens. mlx-lm's attention
    computes with packed numbers if a cache has `bits` and `group_size`.

    Args:
        bits: Bits per number, 4 or 8.
        group_size: Numbers that share a scale and a bias; divides the width of every head.

    Attributes:
        used: Number of tokens stored along the third axis of `kv_tensors`; more may be allocated.
    """

    def __init__(self, bits: int, group_size: int) -> None:
        self.bits = bits
        self.group_size = group_size
        self.kv_tensors: KVTensors | None = None
        self.used = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Packed, Packed]:
        """Store new tokens' keys and values `[rows, heads, tokens, width]`; return those of all tokens."""
        before, self.used = self.used, self.used + keys.shape[2]
        new = [*self._quantize(keys), *self._quantize(values)]
        if self.kv_tensors is None:
            self.kv_tensors = [_zeros(tensor, tensor.shape[0], allocated_tokens(self.used)) for tensor in new]
        elif self.used > self.kv_tensors[0].shape[2]:
            added = allocated_tokens(self.used) - before
            self.kv_tensors = [
                mx.concatenate([tensor[:, :, :before], _zeros(tensor, tensor.shape[0], added)], axis=2)
                for tensor in self.kv_tensors
            ]
        for tensor, numbers in zip(self.kv_tensors, new, strict=True):
            tensor[:, :, before : self.used] = numbers
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Packed, Packed]:
        """Return the packed keys and values of all tokens."""
        assert self.kv_tensors is not None
        seen = tuple(tensor[:, :, : self.used] for tensor in self.kv_tensors)
        return seen[: TENSORS_PER_LAYER // 2], seen[TENSORS_PER_LAYER // 2 :]

    def size(self) -> int:
        """Return the number of tokens, including padding."""
        return self.used

    def empty(self) -> bool:
        """Return whether no tokens have been stored."""
        return self.kv_tensors is None

    def is_trimmable(self) -> bool:
        """Return whether the last tokens can be removed."""
        return True

    def trim(self, count: int) -> int:
        """Remove up to `count` of the last tokens; return the number removed."""
        count = min(self.used, count)
        self.used -= count
        return count

    @property
    def state(self) -> KVTensors:
        """Arrays whose evaluation leaves nothing of the layer pending."""
        return self.kv_tensors or []

    @property
    def nbytes(self) -> int:
        """Allocated bytes, including free capacity."""
        return sum(tensor.nbytes for tensor in self.kv_tensors or ())

    def _quantize(self, numbers: mx.array) -> Packed:
        return tuple(mx.quantize(numbers, group_size=self.group_size, bits=self.bits))


def stack(layers: Sequence[QuantizedLayer], rows: Sequence[int]) -> KVTensors | None:
    """Return the tensors of several layers stacked as rows, aligned right with the longest.

    Args:
        layers: Layers to stack.
        rows: Number of rows of each layer, which an empty layer does not know.
    """
    like = next((layer.kv_tensors for layer in layers if layer.kv_tensors is not None), None)
    if like is None:
        return None
    longest = max(layer.used for layer in layers)
    stacked = [_zeros(tensor, sum(rows), allocated_tokens(longest + 1)) for tensor in like]
    begin = 0
    for layer, count in zip(layers, rows, strict=True):
        for index, tensor in enumerate(layer.kv_tensors or ()):
            left = longest - layer.used
            stacked[index][begin : begin + count, :, left:longest] = tensor[:, :, : layer.used]
        begin += count
    return stacked


def _zeros(like: mx.array, rows: int, tokens: int) -> mx.array:
    return mx.zeros((rows, like.shape[1], tokens, like.shape[3]), dtype=like.dtype)
