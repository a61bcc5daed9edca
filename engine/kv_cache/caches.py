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


def merge(caches: Sequence[Cache], *, thrifty: bool = False) -> Cache:
    """Plain caches as one batched cache, rows in that order.

    Args:
        thrifty: Copy one layer after the other and empty `caches` meanwhile, so that no more than one
            layer is there twice. So in all that follows.
    """
    merged: Cache = []
    for index in range(len(caches[0])):
        layers = [cache[index] for cache in caches]
        merged.append(layers[0].merge(layers))
        if thrifty:
            _settle(merged[-1])
            for cache in caches:
                cache[index] = None
    return merged


def extend(cache: Cache, other: Cache, *, thrifty: bool = False) -> None:
    """Append the rows of `other` to the batched `cache`."""
    for index, layer in enumerate(cache):
        layer.extend(other[index])
        if thrifty:
            _settle(layer)
            other[index] = None


def keep_rows(cache: Cache, rows: Sequence[int], *, thrifty: bool = False) -> None:
    """Drop all rows but these from a batched cache."""
    indices = mx.array(list(rows))
    for layer in cache:
        layer.filter(indices)
        if thrifty:
            _settle(layer)


def extract(cache: Cache, row: int, *, thrifty: bool = False) -> Cache:
    """One row of a batched cache, which is empty afterwards if `thrifty`, as a plain cache."""
    plain: Cache = []
    for index, layer in enumerate(cache):
        plain.append(layer.extract(row))
        if thrifty:
            _settle(plain[-1])
            cache[index] = None
    return plain


def grow(cache: Cache, step: int, ahead: int = 0) -> None:
    """Make room for more tokens, layer by layer: a cache itself would do all at once.

    Args:
        step: Tokens.
        ahead: Nothing is done where there is room for more than so many already.
    """
    for leaf in leaves_of(cache):
        slabs, used = slabs_of(leaf), tokens_in(leaf)
        if not slabs or hasattr(leaf, "max_size") or slabs[0].shape[2] > used + ahead:
            continue
        for index in range(len(slabs)):
            slab, slabs[index] = slabs[index], None
            rows, heads, _, width = slab.shape
            room = mx.zeros((rows, heads, step, width), dtype=slab.dtype)
            slabs[index] = mx.concatenate([slab[:, :, :used], room], axis=2)
            put_slabs(leaf, slabs)
            del slab
            mx.eval(slabs[index])


def arrange(cache: Cache, layers: Sequence[Sequence[tuple[int, int, mx.Dtype]]], tokens: int) -> None:
    """Give a plain cache room for so many tokens at once, so that it does not grow while it is filled.

    Args:
        layers: For each layer that keeps all tokens heads, width and type of its arrays; empty for others.
    """
    for leaf, shapes in zip(leaves_of(cache), layers, strict=True):
        if not shapes:
            continue
        used, slabs = tokens_in(leaf), slabs_of(leaf)
        if slabs and slabs[0].shape[2] >= tokens:
            continue
        room = [mx.zeros((1, heads, tokens - used, width), dtype=dtype) for heads, width, dtype in shapes]
        if slabs and used:
            pairs = zip(slabs, room, strict=True)
            room = [mx.concatenate([slab[:, :, :used], more], axis=2) for slab, more in pairs]
        put_slabs(leaf, room)


def slabs_of(leaf: Any) -> list[Any]:
    """The arrays `[rows, heads, tokens, width]` of a layer that keeps tokens; empty if it has none (yet)."""
    if hasattr(leaf, "parts"):
        return list(leaf.parts or ())
    slabs: list[Any] = []
    for part in (getattr(leaf, "keys", None), getattr(leaf, "values", None)):
        slabs += [] if part is None else part if isinstance(part, list | tuple) else [part]
    return slabs


def put_slabs(leaf: Any, slabs: Sequence[Any]) -> None:
    """Replace what `slabs_of` returned, in whatever form the layer has it."""
    if hasattr(leaf, "parts"):
        leaf.parts = list(slabs)
        return
    half = len(slabs) // 2
    packed = half > 1
    leaf.keys = tuple(slabs[:half]) if packed else slabs[0]
    leaf.values = tuple(slabs[half:]) if packed else slabs[1]


def tokens_in(leaf: Any) -> int:
    """Tokens that a layer holds, padding included."""
    for name in ("used", "_offset", "offset", "_idx"):
        if isinstance(used := getattr(leaf, name, None), int):
            return used
    return 0


def _settle(layer: Any) -> None:
    """Evaluate a copy, so that what it was made from goes."""
    mx.eval(layer.state)


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
    return [layer.state for layer in cache if layer is not None]


def size_in_bytes(cache: Cache) -> int:
    """Bytes that the cache occupies, padding included."""
    return sum(layer.nbytes for layer in cache)
