"""What a batch does with a model's caches, whatever their classes: mlx-lm's are duck-typed.

A *plain* cache holds one sequence, as `model.make_cache` returns it. A *batched* cache holds rows, padded on
the left. The lone row of a batch keeps its plain cache: no padding, no mask, and any class will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx

Cache = list[Any]
"""One cache object per layer, mlx-lm's classes."""


def new_cache(model: Any) -> Cache:
    """An empty plain cache."""
    from mlx_lm.models.cache import make_prompt_cache

    return list(make_prompt_cache(model))


def leaves_of(cache: Iterable[Any]) -> list[Any]:
    """The layers, with those that are lists of caches taken apart."""
    leaves: list[Any] = []
    for layer in cache:
        inner = getattr(layer, "caches", None)
        leaves += [layer] if inner is None else leaves_of(inner)
    return leaves


def can_batch(cache: Iterable[Any]) -> bool:
    """Whether sequences with caches of these classes can share a batch."""
    return all(getattr(layer, "merge", None) and can_batch(getattr(layer, "caches", ())) for layer in cache)


def merge(caches: Sequence[Cache]) -> Cache:
    """Plain caches as one batched cache, rows in that order."""
    return [layers[0].merge(list(layers)) for layers in zip(*caches, strict=True)]


def extend(cache: Cache, other: Cache) -> None:
    """Append the rows of `other` to the batched `cache`."""
    for layer, joining in zip(cache, other, strict=True):
        layer.extend(joining)


def keep_rows(cache: Cache, rows: Sequence[int]) -> None:
    """Drop all rows but these from a batched cache."""
    indices = mx.array(list(rows))
    for layer in cache:
        layer.filter(indices)


def extract(cache: Cache, row: int) -> Cache:
    """One row of a batched cache as a plain cache."""
    return [layer.extract(row) for layer in cache]


def begin_padded(cache: Cache, lengths: Sequence[int], padding: Sequence[int]) -> None:
    """Announce input `[rows, length + padding]` whose padding is on the right."""
    for layer in cache:
        layer.prepare(lengths=list(lengths), right_padding=list(padding))


def end_padded(cache: Cache) -> None:
    """Move the padding of the input since `begin_padded` to the left, where it costs nothing later."""
    for layer in cache:
        layer.finalize()


def can_trim(cache: Iterable[Any]) -> bool:
    """Whether the last tokens can be taken back from a plain cache, however many it holds.

    A sliding window could do so only until it is full.
    """
    return all(
        can_trim(layer.caches)
        if hasattr(layer, "caches")
        else layer.is_trimmable() and not hasattr(layer, "max_size") and not hasattr(layer, "chunk_size")
        for layer in cache
    )


def trim(cache: Cache, tokens: int) -> None:
    """Take the last tokens back from a plain cache."""
    for layer in cache:
        layer.trim(tokens)


def arrays_of(cache: Cache) -> list[Any]:
    """Everything to evaluate so that nothing of the cache is pending."""
    return [layer.state for layer in cache]


def size_in_bytes(cache: Cache) -> int:
    """Bytes that the cache occupies, padding included."""
    return sum(layer.nbytes for layer in cache)
