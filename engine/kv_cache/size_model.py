"""How many bytes caches take, now and in a step's time, whatever their classes.

A *span* layer keeps something of every token and grows by steps of 256 tokens; a *window* grows to its size;
a *state* does not grow. mlx-lm's caches and ours are told apart by their attributes.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import attrs

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache, leaves_of, slabs_of, tokens_in

GROWTH_STEP = 256
"""Tokens by which all caches grow."""

NEVER = 1 << 60


@attrs.frozen
class KVTensor:
    """One array of a layer that grows: `[rows, heads, tokens, width]`."""

    heads: int
    width: int
    dtype: Any
    token_bytes: int


@attrs.frozen
class Layer:
    """What one layer keeps for one row.

    Args:
        slabs: What grows with the tokens.
        window: Tokens beyond which it does not grow; None for all of them.
        fixed: Bytes that it takes however many tokens there are.
    """

    slabs: tuple[KVTensor, ...] = ()
    window: int | None = None
    fixed: int = 0

    def nbytes(self, tokens: int, slice_tokens: int = 0) -> int:
        """Bytes for that many tokens of one row.

        Args:
            slice_tokens: Of a piece of a prompt that is computed at once; a window holds it whole.
        """
        room = with_room(tokens)
        if self.window is not None and room > self.window:
            room = self.window + min(tokens, slice_tokens)
        return self.fixed + room * sum(slab.token_bytes for slab in self.slabs)


@attrs.frozen
class CacheSizeModel:
    """What a model's caches take.

    Args:
        layers: With lists of caches taken apart.
    """

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, model: Any) -> CacheSizeModel:
        """By the shapes that one token leaves; nothing is computed."""
        import mlx.core as mx

        cache = caches.new_cache(model)
        model(mx.array([[0]]), cache=cache)
        return cls(tuple(_layer(leaf) for leaf in leaves_of(cache)))

    def nbytes(self, rows: int, tokens: int, slice_tokens: int = 0) -> int:
        """Bytes of a cache of so many rows of that length, padding included."""
        return rows * sum(count * layer.nbytes(tokens, slice_tokens) for layer, count in self._kinds)

    @cached_property
    def _kinds(self) -> list[tuple[Layer, int]]:
        return list(Counter(self.layers).items())

    @cached_property
    def layers_share(self) -> float:
        """Part of a long cache that its largest layer takes: what a copy made layer by layer costs."""
        sizes = [layer.nbytes(1024) for layer in self.layers]
        return max(sizes, default=0) / (sum(sizes) or 1)


@attrs.frozen
class CacheUsage:
    """One cache now, and at the step at which it grows.

    Args:
        nbytes: Bytes that it occupies.
        room: Tokens per row that still fit in.
        growth: Bytes that it will then have more.
        copied: Bytes of everything that is made anew for that.
        largest: Bytes of the largest layer, grown.
    """

    nbytes: int
    room: int
    growth: int
    copied: int
    largest: int

    @classmethod
    def of(cls, cache: Cache, rows: int, footprint: CacheSizeModel) -> CacheUsage:
        """Measure a plain or batched cache by its shapes; nothing is evaluated."""
        if not cache:
            return cls(0, NEVER, 0, 0, 0)
        nbytes = growth = copied = largest = 0
        least = NEVER
        for leaf, layer in zip(leaves_of(cache), footprint.layers, strict=True):
            size, room, more = _measure(leaf, layer, rows)
            nbytes += size
            growth += more
            least = min(least, room)
            copied += size + more if more else 0
            largest = max(largest, size + more)
        return cls(nbytes, least, growth, copied, largest)


def with_room(tokens: int) -> int:
    """Tokens that a span has room for when it holds these."""
    return -(-tokens // GROWTH_STEP) * GROWTH_STEP


def _measure(leaf: Any, layer: Layer, rows: int) -> tuple[int, int, int]:
    """Bytes of a layer, tokens that still fit in, and bytes that it grows by then."""
    slabs = slabs_of(leaf)
    if layer.slabs and not (slabs and slabs[0].shape[2]):
        return 0, 0, rows * layer.nbytes(1)
    size = sum(slab.nbytes for slab in slabs)
    if not layer.slabs:
        size = leaf.nbytes
        return size, (NEVER if size else 0), (0 if size else rows * layer.fixed)
    capacity = slabs[0].shape[2]
    more = GROWTH_STEP if layer.window is None else max(0, min(GROWTH_STEP, layer.window - capacity))
    if not more:
        return size, NEVER, 0
    return size, max(0, capacity - tokens_in(leaf)), size // capacity * more


def _layer(leaf: Any) -> Layer:
    slabs = [
        KVTensor(slab.shape[1], slab.shape[3], slab.dtype, slab.nbytes // (slab.shape[0] * slab.shape[2]))
        for slab in slabs_of(leaf)
    ]
    if slabs:
        return Layer(tuple(slabs), getattr(leaf, "max_size", None))
    return Layer(fixed=leaf.nbytes)
