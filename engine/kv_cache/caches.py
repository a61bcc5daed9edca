"""Operations on a model's KV caches for batches; they rely on the duck typing of mlx-lm's classes.

A *plain* cache holds one sequence, as returned by `model.make_cache`. A *batched* cache holds several rows,
padded on the left. A batch of one row keeps its plain cache: no padding, no mask, any cache class.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import mlx.core as mx

Cache = list[Any]
"""One cache object per layer, of mlx-lm's classes."""


@attrs.frozen(eq=False)
class KnownLengths:
    """Numbers of tokens that a recurrent layer has yet to process in each row, known on the host.

    Args:
        lengths: The same numbers on the device; a layer with another array has been prepared or changed
            since.
        tokens: Number of tokens by row; negative once a row has ended.
    """

    lengths: mx.array
    tokens: list[int]


def new_cache(model: Any) -> Cache:
    from mlx_lm.models.cache import make_prompt_cache

    return list(make_prompt_cache(model))


def flat_layers(cache: Iterable[Any]) -> list[Any]:
    """Return the layers, with lists of caches flattened."""
    layers: list[Any] = []
    for layer in cache:
        inner = getattr(layer, "caches", None)
        layers += [layer] if inner is None else flat_layers(inner)
    return layers


def can_batch(cache: Iterable[Any]) -> bool:
    return all(getattr(layer, "merge", None) and can_batch(getattr(layer, "caches", ())) for layer in cache)


def merge(caches: Sequence[Cache], *, layerwise: bool = False) -> Cache:
    """Merge plain caches into one batched cache, with rows in the same order.

    Args:
        layerwise: True to copy one layer at a time and empty `caches` meanwhile, so that at most one layer is
            in memory twice. The same holds for the functions below.
    """
    merged: Cache = []
    for index in range(len(caches[0])):
        layers = [cache[index] for cache in caches]
        merged.append(_merge_layers(layers))
        if layerwise:
            _evaluate(merged[-1])
            for cache in caches:
                cache[index] = None
    return merged


def _merge_layers(layers: Sequence[Any]) -> Any:
    """Merge one layer of several sequences, with capacity for more tokens.

    mlx-lm's merge leaves none, so the next step would copy everything again.
    """
    from mlx_lm.models.cache import BatchKVCache, KVCache

    longest = max((layer.offset if type(layer) is KVCache else 0 for layer in layers), default=0)
    if not longest or any(type(layer) is not KVCache for layer in layers):
        return layers[0].merge(layers)
    padding = [longest - layer.offset for layer in layers]
    merged = BatchKVCache(padding)
    merged.offset, merged._idx = merged.offset + longest, longest
    merged.keys = _stack([layer.keys for layer in layers], padding, longest)
    merged.values = _stack([layer.values for layer in layers], padding, longest)
    return merged


def _stack(tensors: Sequence[mx.array | None], padding: Sequence[int], longest: int) -> mx.array:
    """Return tensors stacked as rows, aligned right with the longest, with free capacity behind."""
    like = next(tensor for tensor in tensors if tensor is not None)
    shape = (len(tensors), like.shape[1], allocated_tokens(longest + 1), like.shape[3])
    stacked = mx.zeros(shape, dtype=like.dtype)
    for row, (tensor, left) in enumerate(zip(tensors, padding, strict=True)):
        if tensor is not None:
            stacked[row : row + 1, :, left:longest] = tensor[:, :, : longest - left]
    return stacked


def extend(cache: Cache, other: Cache, *, layerwise: bool = False) -> None:
    for index, layer in enumerate(cache):
        layer.extend(other[index])
        _drop_empty_padding(layer)
        if layerwise:
            _evaluate(layer)
            other[index] = None


def _drop_empty_padding(layer: Any) -> None:
    """Remove the left padding of recurrent states, an array of zeros left by a merge of empty states.

    A layer with padding creates a mask in every step, which Metal's faster kernels do not take. Only an empty
    layer needs the padding, as its only record of the number of rows.
    """
    for part in flat_layers([layer]):
        if hasattr(part, "lengths") and not part.empty():
            part.left_padding = None


def filter_rows(cache: Cache, rows: Sequence[int], *, layerwise: bool = False) -> None:
    indices = mx.array(list(rows))
    for layer in cache:
        layer.filter(indices)
        if layerwise:
            _evaluate(layer)


def extract(cache: Cache, row: int, *, layerwise: bool = False) -> Cache:
    """Return one row of a batched cache as a plain cache; `layerwise` empties the batched cache."""
    plain: Cache = []
    for index, layer in enumerate(cache):
        plain.append(layer.extract(row))
        if layerwise:
            _evaluate(plain[-1])
            cache[index] = None
    return plain


def shallow_copy(cache: Cache) -> Cache:
    """Return layers that share their arrays, so that rows can be added without changing the original."""
    copied = [copy.copy(layer) for layer in cache]
    for layer in copied:
        if hasattr(layer, "caches"):
            layer.caches = type(layer.caches)(shallow_copy(layer.caches))
    return copied


def layers_to_grow(cache: Cache, lookahead: int = 0) -> list[Any]:
    return [
        layer
        for layer in flat_layers(cache)
        if (tensors := kv_tensors(layer))
        and not hasattr(layer, "max_size")
        and tensors[0].shape[2] <= token_count(layer) + lookahead
    ]


def grow(layers: Iterable[Any], step: int, *, wait: bool = True) -> None:
    """Allocate memory for more tokens layer by layer; a cache itself would grow all layers at once.

    Args:
        step: Number of tokens to add.
        wait: True to evaluate each tensor before the next, so that at most one is in memory twice.
    """
    for layer in layers:
        tensors, used = kv_tensors(layer), token_count(layer)
        for index in range(len(tensors)):
            tensor, tensors[index] = tensors[index], None
            rows, heads, _, width = tensor.shape
            added = mx.zeros((rows, heads, step, width), dtype=tensor.dtype)
            tensors[index] = mx.concatenate([tensor[:, :, :used], added], axis=2)
            set_kv_tensors(layer, tensors)
            del tensor
            (mx.eval if wait else mx.async_eval)(tensors[index])


def preallocate(cache: Cache, specs: Sequence[Sequence[tuple[int, int, mx.Dtype]]], tokens: int) -> None:
    """Allocate a plain cache for a number of tokens at once, so that it need not grow while it is filled.

    Args:
        specs: Heads, width and dtype of the tensors of each layer that keeps all tokens; empty for others.
        tokens: Total number of tokens.
    """
    for layer, spec in zip(flat_layers(cache), specs, strict=True):
        if not spec:
            continue
        used, tensors = token_count(layer), kv_tensors(layer)
        if tensors and tensors[0].shape[2] >= tokens:
            continue
        allocated = [mx.zeros((1, heads, tokens - used, width), dtype=dtype) for heads, width, dtype in spec]
        if tensors and used:
            pairs = zip(tensors, allocated, strict=True)
            allocated = [mx.concatenate([tensor[:, :, :used], added], axis=2) for tensor, added in pairs]
        set_kv_tensors(layer, allocated)


def kv_tensors(layer: Any) -> list[Any]:
    """Return the arrays `[rows, heads, tokens, width]` of a per-token layer; empty if it has none."""
    if hasattr(layer, "kv_tensors"):
        return list(layer.kv_tensors or ())
    tensors: list[Any] = []
    for part in (getattr(layer, "keys", None), getattr(layer, "values", None)):
        tensors += [] if part is None else part if isinstance(part, list | tuple) else [part]
    return tensors


def set_kv_tensors(layer: Any, tensors: Sequence[Any]) -> None:
    """Store arrays in a cache layer: as many as `kv_tensors` returns, in its order."""
    if hasattr(layer, "kv_tensors"):
        layer.kv_tensors = list(tensors)
        return
    half = len(tensors) // 2
    packed = half > 1
    layer.keys = tuple(tensors[:half]) if packed else tensors[0]
    layer.values = tuple(tensors[half:]) if packed else tensors[1]


def token_count(layer: Any) -> int:
    """Return the number of tokens in a layer, including padding."""
    for name in ("used", "_offset", "offset", "_idx"):
        if isinstance(used := getattr(layer, name, None), int):
            return used
    return 0


def _evaluate(layer: Any) -> None:
    mx.eval(layer.state)


def prepare(cache: Cache, lengths: Sequence[int], padding: Sequence[int]) -> None:
    """Announce input `[rows, length + padding]` that is padded on the right."""
    for layer in cache:
        layer.prepare(lengths=list(lengths), right_padding=list(padding))
    for layer in flat_layers(cache):
        if getattr(layer, "lengths", None) is not None:
            layer.known_lengths = KnownLengths(layer.lengths, list(lengths))


def finalize(cache: Cache) -> None:
    """Move the right padding of the input since `prepare` to the left, where it costs nothing later.

    Also needed before the first pass over a merged cache: empty recurrent states have a left padding of zeros
    and would create a mask from it in every step.
    """
    for layer in cache:
        layer.finalize()


def can_trim(cache: Iterable[Any]) -> bool:
    """Return whether the last tokens of a plain cache can be removed, however many it holds.

    A sliding window allows it only until the window is full.
    """
    return all(
        can_trim(layer.caches)
        if hasattr(layer, "caches")
        else layer.is_trimmable() and not hasattr(layer, "max_size") and not hasattr(layer, "chunk_size")
        for layer in cache
    )


def trim(cache: Cache, tokens: int) -> None:
    """Remove the last tokens from a plain cache."""
    for layer in cache:
        layer.trim(tokens)


def state(cache: Cache) -> list[Any]:
    """Return all arrays whose evaluation leaves nothing of the cache pending."""
    return [layer.state for layer in cache if layer is not None]


def evaluate(cache: Cache) -> None:
    """Evaluate the cache, so that the arrays it was copied from are freed."""
    mx.eval(state(cache))


def size_in_bytes(cache: Cache) -> int:
    """Return the bytes that the cache occupies, including padding."""
    return sum(layer.nbytes for layer in cache)


GROWTH_STEP = 256  # Number of tokens that caches allocate at once, as in mlx-lm; growth copies everything


def allocated_tokens(tokens: int) -> int:
    """Return the allocated capacity, in tokens, of a cache with this many tokens."""
    return -(-tokens // GROWTH_STEP) * GROWTH_STEP


GROWN_AHEAD = 64  # Free capacity, in tokens, at which a large cache starts to grow by a few layers per step

LARGE_BYTES = 32 * 1024 * 1024
"""Size in bytes from which a cache does not grow in one step, because the copy would stall streams."""


@attrs.frozen
class Batching:
    """The kinds of batching under which a model computes each row as it would alone.

    Args:
        prefill: True if prompts of unequal length may share a prefill pass.
        decode: True if sequences of unequal length may share a decode step; required for a shared prefill.
        reason: Reason for a restriction; empty if there is none.
    """

    prefill: bool = True
    decode: bool = True
    reason: str = ""


def restrict(model: Any, batching: Batching) -> None:
    """Allow or forbid batching of a model's rows. Existing caches keep their state."""
    if batching.decode:
        _allow_merging(model)
    else:
        _forbid_merging(model)
    model.prefills_alone = not batching.prefill


def prefills_alone(model: Any) -> bool:
    """Return whether each prompt needs a prefill pass of its own."""
    return getattr(model, "prefills_alone", False)


def new_mergeable_cache(model: Any) -> Cache:
    """Return an empty plain cache that can be merged, even if the model's rows are not batched."""
    restricted = _restriction_of(model)
    return new_cache(model) if restricted is None else restricted.make()


class _UnmergeableCaches:
    """Creates a model's caches without their merge method. `model`: model whose `make_cache` this replaces;
    removal restores the original.
    """

    def __init__(self, model: Any) -> None:
        self.covered = vars(model).get("make_cache")
        self._classes = [type(layer) for layer in new_cache(model)]
        self._make = getattr(model, "make_cache", None)

    def __call__(self) -> Cache:
        made = self.make()
        for layer in made:
            layer.merge = None
        return made

    def make(self) -> Cache:
        return list(self._make() if self._make is not None else (made() for made in self._classes))


def _restriction_of(model: Any) -> _UnmergeableCaches | None:
    make = getattr(model, "make_cache", None)
    return make if isinstance(make, _UnmergeableCaches) else None


def _forbid_merging(model: Any) -> None:
    if _restriction_of(model) is None:
        model.make_cache = _UnmergeableCaches(model)


def _allow_merging(model: Any) -> None:
    restricted = _restriction_of(model)
    if restricted is not None:
        del model.make_cache
        if restricted.covered is not None:
            model.make_cache = restricted.covered
