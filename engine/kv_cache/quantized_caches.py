"""Quantised caches of full attention that a batch can share: mlx-lm's own cannot be merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache.quantized_layer import KVTensors, QuantizedLayer, stack


class QuantizedCache(QuantizedLayer):
    """One sequence; duck-typed as mlx-lm's `KVCache`."""

    @property
    def offset(self) -> int:
        """Position of the next token."""
        return self.used

    def make_mask(self, tokens: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """Return which tokens the next ones may see."""
        from mlx_lm.models.cache import create_attention_mask

        return create_attention_mask(
            tokens, offset=self.used, return_array=return_array, window_size=window_size
        )

    def restore(self, kv_tensors: KVTensors, tokens: int) -> None:
        """Replace the content by what another cache held of a sequence."""
        self.kv_tensors, self.used = kv_tensors, tokens

    @staticmethod
    def merge(caches: Sequence[QuantizedCache]) -> BatchedQuantizedCache:
        """Return sequences as the rows of a batch, in that order."""
        longest = max(cache.used for cache in caches)
        padding = [longest - cache.used for cache in caches]
        batched = BatchedQuantizedCache(caches[0].bits, caches[0].group_size, padding)
        batched.kv_tensors = stack(caches, [1] * len(caches))
        batched.used = longest
        return batched


class BatchedQuantizedCache(QuantizedLayer):
    """Rows that are padded on the left; duck-typed as mlx-lm's `BatchKVCache`.

    The padding is known to the host, so that nothing waits for the device to tell it.

    Args:
        padding: Tokens of each row, on its left, that mean nothing.
    """

    def __init__(self, bits: int, group_size: int, padding: Sequence[int]) -> None:
        super().__init__(bits, group_size)
        self._padding = list(padding)
        self._right_padding: list[int] | None = None
        self._arrays: tuple[int, mx.array, mx.array] | None = None

    @property
    def padding(self) -> list[int]:
        """Tokens of each row, on its left, that mean nothing."""
        return self._padding

    @padding.setter
    def padding(self, padding: list[int]) -> None:
        self._padding, self._arrays = padding, None

    @property
    def offset(self) -> mx.array:
        """Position of each row's next token."""
        return self._on_device()[0]

    @property
    def left_padding(self) -> mx.array:
        """The padding as the device sees it."""
        return self._on_device()[1]

    def make_mask(
        self, tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        """Return which tokens the next ones of each row may see; None if a lone one may see all."""
        from mlx_lm.models.base import create_causal_mask

        if tokens == 1 and not any(self._padding) and window_size is None and not return_array:
            return None
        mask: mx.array = create_causal_mask(
            tokens, offset=self.used, left_padding=self.left_padding, window_size=window_size
        )
        return mask

    def prepare(self, *, lengths: Sequence[int], right_padding: Sequence[int]) -> None:
        """Announce tokens that are padded on the right; they are hidden by those that come before them."""
        self._right_padding = list(right_padding)

    def finalize(self) -> None:
        """Move the padding on the right to the left."""
        right, self._right_padding = self._right_padding, None
        if right is None or self.kv_tensors is None:
            return
        from mlx_lm.models.cache import dynamic_roll

        shifts = mx.array(right)[:, None]
        self.kv_tensors = [dynamic_roll(tensor, shifts, axis=2) for tensor in self.kv_tensors]
        self.padding = [left + more for left, more in zip(self._padding, right, strict=True)]

    def filter(self, rows: mx.array) -> None:
        """Keep these rows only, in that order; a row may be kept more than once."""
        chosen: Any = rows.tolist()
        padding = [self._padding[row] for row in chosen]
        common = min(padding)
        if self.kv_tensors is not None:
            self.kv_tensors = [tensor[rows][:, :, common:] for tensor in self.kv_tensors]
            self.used -= common
        self.padding = [left - common for left in padding]

    def extend(self, other: BatchedQuantizedCache) -> None:
        """Append another batch's rows."""
        longest = max(self.used, other.used)
        self.kv_tensors = stack([self, other], [len(self._padding), len(other.padding)])
        self.padding = [
            *(left + longest - self.used for left in self._padding),
            *(left + longest - other.used for left in other.padding),
        ]
        self.used = longest

    def extract(self, row: int) -> QuantizedCache:
        """Return one row as a sequence of its own."""
        plain = QuantizedCache(self.bits, self.group_size)
        if self.kv_tensors is not None:
            seen = slice(self._padding[row], self.used)
            tensors = [mx.contiguous(tensor[row : row + 1, :, seen]) for tensor in self.kv_tensors]
            plain.restore(tensors, self.used - self._padding[row])
        return plain

    def _on_device(self) -> tuple[mx.array, mx.array]:
        arrays = self._arrays
        if arrays is None or arrays[0] != self.used:
            offsets = mx.array([self.used - left for left in self._padding])
            padding = mx.array(self._padding) if arrays is None else arrays[2]
            self._arrays = arrays = (self.used, offsets, padding)
        return arrays[1], arrays[2]
