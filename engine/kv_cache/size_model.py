"""Sizes of KV caches in bytes, now and after the next growth, for all cache classes.

A *per-token* layer stores every token and grows by steps of 256 tokens; a *rotating* one grows up to its
window; a *recurrent* one does not grow. The classes of mlx-lm and ours are told apart by their attributes.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import attrs

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import (
    GROWTH_STEP,
    Cache,
    allocated_tokens,
    flat_layers,
    kv_tensors,
    token_count,
)

UNBOUNDED = 1 << 60

_STATE_ARRAYS = 2


@attrs.frozen
class KVTensorSpec:
    """Shape of one growing array of a layer: `[rows, heads, tokens, width]`."""

    heads: int
    width: int
    dtype: Any
    bytes_per_token: int


@attrs.frozen
class LayerSpec:
    """Memory of one layer for one row.

    Args:
        kv_tensors: Arrays that grow with the tokens.
        window: Number of tokens up to which it grows; None for no limit.
        fixed_bytes: Bytes that do not depend on the number of tokens.
    """

    kv_tensors: tuple[KVTensorSpec, ...] = ()
    window: int | None = None
    fixed_bytes: int = 0

    def nbytes(self, tokens: int, chunk_tokens: int = 0) -> int:
        """Return the bytes for a number of tokens in one row. `tokens`: number of tokens; `chunk_tokens`:
        number of tokens in a prefill chunk; a window stores the whole chunk.
        """
        allocated = allocated_tokens(tokens)
        if self.window is not None and allocated > self.window:
            allocated = self.window + min(tokens, chunk_tokens)
        return self.fixed_bytes + allocated * sum(tensor.bytes_per_token for tensor in self.kv_tensors)


@attrs.frozen
class CacheSizeModel:
    """Memory of a model's caches. `layers`: memory of each layer, with lists of caches flattened."""

    layers: tuple[LayerSpec, ...]

    @classmethod
    def of(cls, model: Any) -> CacheSizeModel:
        """Derive the sizes from the shapes that one token produces, without evaluating anything."""
        import mlx.core as mx

        cache = caches.new_cache(model)
        model(mx.array([[0]]), cache=cache)
        return cls(tuple(_layer_spec(layer) for layer in flat_layers(cache)))

    def nbytes(self, rows: int, tokens: int, chunk_tokens: int = 0) -> int:
        """Return the bytes of a cache with this many rows and tokens, including padding."""
        return rows * sum(count * layer.nbytes(tokens, chunk_tokens) for layer, count in self._layer_counts)

    @cached_property
    def buffers(self) -> int:
        """Number of arrays in one cache, with two assumed for a recurrent state."""
        return sum(len(layer.kv_tensors) or _STATE_ARRAYS for layer in self.layers)

    @cached_property
    def _layer_counts(self) -> list[tuple[LayerSpec, int]]:
        return list(Counter(self.layers).items())

    @cached_property
    def largest_layer_share(self) -> float:
        """Fraction of a long cache in its largest layer, which is the overhead of a layerwise copy."""
        sizes = [layer.nbytes(1024) for layer in self.layers]
        return max(sizes, default=0) / (sum(sizes) or 1)


@attrs.frozen
class CacheUsage:
    """Memory of one cache, now and at its next growth.

    Args:
        nbytes: Bytes occupied now.
        free_tokens: Free capacity per row in tokens.
        growth: Bytes added by the next growth.
        copied: Bytes of all layers that the next growth copies, at their new size.
        largest_layer: Bytes of the largest layer after the growth.
        largest_layer_now: Bytes of the largest layer now.
    """

    nbytes: int
    free_tokens: int
    growth: int
    copied: int
    largest_layer: int
    largest_layer_now: int

    @classmethod
    def of(cls, cache: Cache, rows: int, size_model: CacheSizeModel) -> CacheUsage:
        """Measure a plain or batched cache by its shapes, without evaluating anything."""
        if not cache:
            return cls(0, UNBOUNDED, 0, 0, 0, 0)
        nbytes = growth = copied = largest_layer = largest_now = 0
        free_tokens = UNBOUNDED
        for layer, spec in zip(flat_layers(cache), size_model.layers, strict=True):
            size, free, added = _measure(layer, spec, rows)
            nbytes += size
            growth += added
            free_tokens = min(free_tokens, free)
            copied += size + added if added else 0
            largest_layer = max(largest_layer, size + added)
            largest_now = max(largest_now, size)
        return cls(nbytes, free_tokens, growth, copied, largest_layer, largest_now)


def _measure(layer: Any, spec: LayerSpec, rows: int) -> tuple[int, int, int]:
    tensors = kv_tensors(layer)
    if spec.kv_tensors and not (tensors and tensors[0].shape[2]):
        return 0, 0, rows * spec.nbytes(1)
    size = sum(tensor.nbytes for tensor in tensors)
    if not spec.kv_tensors:
        size = layer.nbytes
        return size, (UNBOUNDED if size else 0), (0 if size else rows * spec.fixed_bytes)
    capacity = tensors[0].shape[2]
    added = GROWTH_STEP if spec.window is None else max(0, min(GROWTH_STEP, spec.window - capacity))
    if not added:
        return size, UNBOUNDED, 0
    return size, max(0, capacity - token_count(layer)), size // capacity * added


def _layer_spec(layer: Any) -> LayerSpec:
    tensors = [
        KVTensorSpec(
            tensor.shape[1],
            tensor.shape[3],
            tensor.dtype,
            tensor.nbytes // (tensor.shape[0] * tensor.shape[2]),
        )
        for tensor in kv_tensors(layer)
    ]
    if tensors:
        return LayerSpec(tuple(tensors), getattr(layer, "max_size", None))
    return LayerSpec(fixed_bytes=layer.nbytes)
