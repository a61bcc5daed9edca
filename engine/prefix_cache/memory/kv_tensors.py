"""What can be cached of a model's cache, by the classes of its layers.

A per-token layer (attention) holds something for every token, so a part of it is the cache of a part of the
prompt. A recurrent or rotating layer (a sliding window) holds only the state that the last token left, good
for exactly the tokens that it has seen. A model with other classes is not cached at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache.caches import Cache, flat_layers
from greenroom.engine.kv_cache.quantized_layer import TENSORS_PER_LAYER

LayerTensors = tuple[mx.array | None, ...]
"""Tensors of all per-token layers, or of all others, flat; None where a layer holds nothing."""

_QUANTIZED = ("QuantizedCache", "BatchedQuantizedCache")
_PER_TOKEN = ("KVCache", "BatchKVCache", *_QUANTIZED)
_ROTATING = ("RotatingKVCache", "BatchRotatingKVCache")
_STATEFUL = (*_ROTATING, "ArraysCache")


def can_cache(cache: Cache) -> bool:
    """Return whether every layer is of a class that is known here, exactly."""
    return all(_class_name(layer) in (*_PER_TOKEN, *_STATEFUL) for layer in flat_layers(cache))


def is_stateful(cache: Cache) -> bool:
    """Return whether some layer is recurrent or rotating."""
    return any(_class_name(layer) in _STATEFUL for layer in flat_layers(cache))


def copy_kv(cache: Cache, row: int | None, start: int, stop: int, length: int) -> LayerTensors:
    """Return KV tensors of the tokens from `start` to `stop`, copied: they keep nothing else alive.

    Args:
        row: Row of a batched cache; None for a plain one.
        length: Tokens that the cache holds of this sequence.
    """
    found: list[mx.array | None] = []
    for layer in flat_layers(cache):
        if _class_name(layer) in _PER_TOKEN:
            pad = 0 if row is None else layer.size() - length
            rows = slice(None) if row is None else slice(row, row + 1)
            for whole in _kv_tensors(layer):
                found.append(None if whole is None else _copy(whole[rows, :, pad + start : pad + stop]))
    return tuple(found)


def bytes_per_token(cache: Cache) -> int:
    """Return the bytes of the KV tensors of one token of a row of a cache that holds some."""
    layers = [layer for layer in flat_layers(cache) if _class_name(layer) in _PER_TOKEN]
    return sum(
        whole.nbytes // (whole.shape[0] * whole.shape[2])
        for layer in layers
        for whole in _kv_tensors(layer)
        if whole is not None
    )


def slice_kv(kv: LayerTensors, start: int, stop: int) -> LayerTensors:
    """Return a part of what `copy_kv` returned, copied."""
    return tuple(None if whole is None else _copy(whole[:, :, start:stop]) for whole in kv)


def view_kv(kv: LayerTensors, stop: int) -> LayerTensors:
    """Return the beginning of what `copy_kv` returned, not copied."""
    return tuple(None if whole is None else whole[:, :, :stop] for whole in kv)


def copy_states(cache: Cache, row: int | None) -> LayerTensors:
    """Return the states of recurrent and rotating layers, copied."""
    found: list[mx.array | None] = []
    for layer in flat_layers(cache):
        name = _class_name(layer)
        if name not in _STATEFUL:
            continue
        plain = layer if row is None else layer.extract(row)
        if name in _ROTATING:
            found += [_ordered_window(plain, plain.keys), _ordered_window(plain, plain.values)]
        else:
            found += [None if array is None else _copy(array) for array in plain.cache]
    return tuple(found)


def restore(
    cache: Cache, segments: Sequence[LayerTensors], states: LayerTensors, length: int, room: int
) -> Iterator[int]:
    """Fill an empty plain cache; what it is filled from is never written to.

    Args:
        segments: KV tensors that follow each other.
        states: As `copy_states` returned them after the last of these tokens.
        length: Tokens of all segments together.
        room: Tokens for which memory is allocated: a cache that grows is copied again.

    Yields:
        The bytes of each copy, before it is made.
    """
    kv = iter(zip(*segments, strict=True))
    state = iter(states)
    for layer in flat_layers(cache):
        if _class_name(layer) in _PER_TOKEN:
            tensors: list[mx.array | None] = []
            for _ in _kv_tensors(layer):
                parts = [part for part in next(kv) if part is not None]
                if parts:
                    yield parts[0][0, :, :1].nbytes * room
                tensors.append(_concatenate(parts, room - length) if parts else None)
            if tensors[0] is not None:
                _set_kv_tensors(layer, tensors, length)
        elif _class_name(layer) in _ROTATING:
            keys, values = _alias(next(state)), _alias(next(state))
            if keys is not None:
                layer.keys, layer.values = keys, values
                layer.offset, layer._idx = length, keys.shape[2]
        else:
            layer.cache = [_alias(next(state)) for _ in layer.cache]


def nbytes_of(arrays: LayerTensors) -> int:
    """Return the bytes of what the arrays hold."""
    return sum(array.nbytes for array in arrays if array is not None)


def buffer_bytes(arrays: LayerTensors) -> int:
    """Return the bytes that evaluated arrays occupy, whoever else uses their buffers."""
    return sum(mx.get_array_buffer_size(array) for array in arrays if array is not None)


def _kv_tensors(layer: Any) -> Sequence[mx.array | None]:
    """Return what a per-token layer holds, in arrays whose third axis is the tokens."""
    if _class_name(layer) in _QUANTIZED:
        return layer.kv_tensors or (None,) * TENSORS_PER_LAYER
    return layer.keys, layer.values


def _set_kv_tensors(layer: Any, tensors: list[mx.array | None], length: int) -> None:
    if _class_name(layer) in _QUANTIZED:
        layer.restore(tensors, length)
    else:
        layer.keys, layer.values = tensors
        layer.offset = length


def _ordered_window(layer: Any, whole: mx.array | None) -> mx.array | None:
    """Return the tokens that the window still needs, oldest first."""
    if whole is None:
        return None
    ordered = layer._temporal_order(whole)
    return _copy(layer._trim(max(0, ordered.shape[2] - layer.max_size), ordered))


def _concatenate(parts: Sequence[mx.array], added: int) -> mx.array:
    """Return arrays that follow each other with room for more tokens behind, under way already."""
    rows, heads, _, width = parts[0].shape
    room = mx.zeros((rows, heads, added, width), dtype=parts[0].dtype)
    whole = mx.concatenate([*parts, room], axis=2)
    mx.async_eval(whole)
    return whole


def _alias(array: mx.array | None) -> mx.array | None:
    """Return another Python object for the same array: item assignment changes the object it is called on."""
    return None if array is None else array[...]


def _copy(array: mx.array) -> mx.array:
    return mx.contiguous(array)


def _class_name(layer: Any) -> str:
    return type(layer).__name__
