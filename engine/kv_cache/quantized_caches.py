"""Quantized full-attention caches that support batching; mlx-lm's own cannot be merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache.quantized_layer import KVTensors, QuantizedLayer, stack


class QuantizedCache(QuantizedLayer):
    """Quantized cache of one sequence, duck-typed as mlx-lm's `KVCache`."""

    @property
    def offset(self) -> int:
        """Position of the next token."""
        return self.used

    def make_mask(self, tokens: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """Return the attention mask of the next tokens."""
        from mlx_lm.models.cache import create_attention_mask

        return create_attention_mask(
            tokens, offset=self.used, return_array=return_array, window_size=window_size
        )

    def restore(self, kv_tensors: KVTensors, tokens: int) -> None:
        """Replace the content with the tensors of another cache's sequence."""
        self.kv_tensors, self.used = kv_tensors, tokens

    @staticmethod
    def merge(caches: Sequence[QuantizedCache]) -> BatchedQuantizedCache:
        """Merge sequences into the rows of a batch, in the same order."""
        longest = max(cache.used for cache in caches)
        padding = [longest - cache.used for cache in caches]
        batched = BatchedQuantizedCache(caches[0].bits, caches[0].group_size, padding)
        batched.kv_tensors = stack(caches, [1] * len(caches))
        batched.used = longest
        return batched


class BatchedQuantizedCache(QuantizedLayer):
    """Quantized cache of rows padded on the left, duck-typed as mlx-lm's `BatchKVCache`.

    The padding is known on the host, so reading it does not wait for the device.

    Args:
        bits: Bits per stored number.
        group_size: Numbers that share a scale and a bias.
        padding: Left padding of each row, in tokens.
    """

    def __init__(self, bits: int, group_size: int, padding: Sequence[int]) -> None:
        super().__init__(bits, group_size)
        self._padding = list(padding)
        self._right_padding: list[int] | None = None
        self._arrays: tuple[int, mx.array, mx.array] | None = None

    @property
    def padding(self) -> list[int]:
        """Left padding of each row, in tokens."""
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
        """Left padding of each row as a device array."""
        return self._on_device()[1]

    def make_mask(
        self, tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        """Return the attention mask of each row's next tokens; None if one token may attend to all."""
        from mlx_lm.models.base import create_causal_mask

        if tokens == 1 and not any(self._padding) and window_size is None and not return_array:
            return None
        mask: mx.array = create_causal_mask(
            tokens, offset=self.used, left_padding=self.left_padding, window_size=window_size
        )
        return mask

    def prepare(self, *, lengths: Sequence[int], right_padding: Sequence[int]) -> None:
        """Announce tokens padded on the right, which the causal mask hides from the tokens before them."""
        self._right_padding = list(right_padding)

    def finalize(self) -> None:
        """Move the right padding to the left."""
        right, self._right_padding = self._right_padding, None
        if right is None or self.kv_tensors is None:
            return
        from mlx_lm.models.cache import dynamic_roll

        shifts = mx.array(right)[:, None]
        self.kv_tensors = [dynamic_roll(tensor, shifts, axis=2) for tensor in self.kv_tensors]
        self.padding = [left + more for left, more in zip(self._padding, right, strict=True)]

    def filter(self, rows: mx.array) -> None:
        """Keep only these rows, in this order; rows may repeat."""
        chosen: Any = rows.tolist()
        padding = [self._padding[row] for row in chosen]
        common = min(padding)
        if self.kv_tensors is not None:
            self.kv_tensors = [tensor[rows][:, :, common:] for tensor in self.kv_tensors]
            self.used -= common
        self.padding = [left - common for left in padding]

    def extend(self, other: BatchedQuantizedCache) -> None:
        """Append the rows of another batch."""
        longest = max(self.used, other.used)
        self.kv_tensors = stack([self, other], [len(self._padding), len(other.padding)])
        self.padding = [
            *(left + longest - self.used for left in self._padding),
            *(left + longest - other.used for left in other.padding),
        ]
        self.used = longest

    def extract(self, row: int) -> QuantizedCache:
        """Return one row as the cache of a single sequence."""
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
