"""Attention split by heads and queries, which are independent of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx


class SplitAttention:
    """An attention operation that can be computed in parts.

    Args:
        attend: `mx.fast.scaled_dot_product_attention`.
        queries: `[rows, heads, queries, width]`.
        keys: `[rows, KV heads, keys, width]`; several query heads may share a KV head.
        values: Same layout as `keys`.
        named: Further arguments of `attend`. A mask must be an array or None.
    """

    def __init__(
        self,
        attend: Callable[..., mx.array],
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        named: dict[str, Any],
    ) -> None:
        self._attend = attend
        self._queries, self._named = queries, named
        self._shared = queries.shape[1] // keys.shape[1]
        on_cpu = mx.default_device() != mx.Device(mx.gpu)
        self._keys, self._values = (_as_multiplied(keys), mx.contiguous(values)) if on_cpu else (keys, values)

    @property
    def operands(self) -> list[mx.array]:
        """The arrays that every part needs."""
        return [self._keys, self._values]

    def heads_at_once(self, work: float, limit: float, tile: int) -> int:
        """Return the number of heads per part.

        Args:
            work: Operations for one query in one head.
            limit: Operations per part.
            tile: Smallest number of queries per part.
        """
        wanted = int(limit / (work * tile)) // self._shared * self._shared
        return min(max(wanted, self._shared), self._queries.shape[1])

    def part(self, row: int, first: int, count: int, begin: int, end: int) -> mx.array:
        """Return one row's attention output for queries `begin` to `end` and `count` heads from `first`."""
        heads = slice(first, first + count)
        theirs = slice(first // self._shared, (first + count) // self._shared)
        rest = dict(self._named)
        if rest.get("mask") is not None:
            rest["mask"] = self._mask(rest["mask"], row, heads, slice(begin, end))
        if rest.get("sinks") is not None:
            rest["sinks"] = rest["sinks"][heads]
        own = slice(row, row + 1)
        keys, values = self._keys[own, theirs], self._values[own, theirs]
        return self._attend(self._queries[own, heads, begin:end], keys, values, **rest)

    def _mask(self, mask: mx.array, row: int, heads: slice, span: slice) -> mx.array:
        rows, all_heads, count, _ = self._queries.shape
        if mask.ndim == 4 and mask.shape[0] == rows:
            mask = mask[row : row + 1]
        if mask.ndim > 2 and mask.shape[-3] == all_heads:
            mask = mask[..., heads, :, :]
        return mask[..., span, :] if mask.ndim > 1 and mask.shape[-2] == count else mask


def _as_multiplied(keys: mx.array) -> mx.array:
    """Return keys in the layout of CPU matrix products, which would otherwise copy them for each part."""
    return mx.contiguous(keys.swapaxes(-1, -2)).swapaxes(-1, -2)
