"""Tensors of a model's KV cache that the prefix cache can store, by the class of each layer.

A per-token layer (attention) holds data for every token, so a part of it is the cache of a part of the
prompt. A recurrent or rotating layer (sliding window) holds only the state after the last token, valid for
exactly the tokens seen. Models with other layer classes are not cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache.caches import Cache, flat_layers
from greenroom.engine.kv_cache.quantization import TENSORS_PER_LAYER
from greenroom.engine.kv_cache.remote_layers import RemoteLayers, RemoteTensors

LayerTensors = tuple[mx.array | RemoteTensors | None, ...]
"""Flat tensors of all per-token layers, or of all other layers; None for an empty layer.

Packed scales and biases of quantized layers follow the tensors of the per-token layers. If other processes
have layers of the model, the last element stands for their tensors.
"""

_OWN = 2  # Number of unpacked arrays of a per-token layer: keys and values, or their quantized numbers

_QUANTIZED = ("QuantizedCache", "BatchedQuantizedCache")
_PER_TOKEN = ("KVCache", "BatchKVCache", *_QUANTIZED)
_ROTATING = ("RotatingKVCache", "BatchRotatingKVCache")
_STATEFUL = (*_ROTATING, "ArraysCache")


def can_cache(cache: Cache) -> bool:
    return _kinds(cache) <= {*_PER_TOKEN, *_STATEFUL}


def is_stateful(cache: Cache) -> bool:
    """Return whether any layer is recurrent or rotating."""
    return not _kinds(cache).isdisjoint(_STATEFUL)


def copy_kv(cache: Cache, row: int | None, start: int, stop: int, length: int) -> LayerTensors:
    """Copy the KV tensors of the tokens from `start` to `stop`; the copies keep nothing else alive.

    Args:
        row: Row of a batched cache; None for an unbatched one.
        length: Number of this sequence's tokens in the cache.
    """
    own: list[mx.array | None] = []
    quantized: list[list[mx.array | None]] = []
    rows = slice(None) if row is None else slice(row, row + 1)
    for layer in _per_token_layers(cache):
        pad = 0 if row is None else layer.size() - length
        tensors = [
            None if whole is None else whole[rows, :, pad + start : pad + stop]
            for whole in _kv_tensors(layer)
        ]
        if _class_name(layer) in _QUANTIZED:
            quantized.append(tensors)
            tensors = tensors[:: TENSORS_PER_LAYER // _OWN]
        own += [None if tensor is None else _copy(tensor) for tensor in tensors]
    elsewhere = [layer.copy_kv(row, start, stop, length) for layer in _remote_layers(cache)]
    return (*own, *pack(quantized), *elsewhere)


def bytes_per_token(cache: Cache) -> int:
    return sum(
        whole.nbytes // (whole.shape[0] * whole.shape[2])
        for layer in _per_token_layers(cache)
        for whole in _kv_tensors(layer)
        if whole is not None
    )


def slice_kv(kv: LayerTensors, start: int, stop: int) -> LayerTensors:
    return tuple(_copy(part) if isinstance(part, mx.array) else part for part in view_kv(kv, stop, start))


def view_kv(kv: LayerTensors, stop: int, start: int = 0) -> LayerTensors:
    return tuple(None if whole is None else whole[:, :, start:stop] for whole in kv)


def copy_states(cache: Cache, row: int | None) -> LayerTensors:
    found: list[mx.array | RemoteTensors | None] = []
    for layer in flat_layers(cache):
        name = _class_name(layer)
        if name not in _STATEFUL:
            continue
        plain = layer if row is None else layer.extract(row)
        if name in _ROTATING:
            found += [_ordered_window(plain, plain.keys), _ordered_window(plain, plain.values)]
        else:
            found += [None if array is None else _copy(array) for array in plain.cache]
    return (*found, *(layer.copy_states(row) for layer in _remote_layers(cache)))


def restore(
    cache: Cache, segments: Sequence[LayerTensors], states: LayerTensors, length: int, room: int
) -> Iterator[int]:
    """Fill an empty unbatched cache; the source arrays are never written to.

    Args:
        states: Result of `copy_states` after the last of these tokens.
        length: Number of tokens of all segments.
        room: Number of tokens to allocate memory for, since growing a cache copies it.

    Yields:
        Bytes of each copy, before it is made.
    """
    by_layer = [_tensors_by_layer(cache, arrays_of(kv)) for kv in segments]
    state = iter(arrays_of(states))
    for layer in _remote_layers(cache):
        elsewhere = [part for kv in segments for part in kv if isinstance(part, RemoteTensors)]
        of_states = [part for part in states if isinstance(part, RemoteTensors)]
        layer.restore(elsewhere, of_states[0] if of_states else None, length, room)
    for layer in flat_layers(cache):
        if isinstance(layer, RemoteLayers):
            continue
        if _class_name(layer) in _PER_TOKEN:
            tensors: list[mx.array | None] = []
            for parallel in zip(*map(next, by_layer), strict=True):
                parts = [part for part in parallel if part is not None]
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


def nbytes_of(arrays: LayerTensors, page: int = 1) -> int:
    """Return the bytes of the arrays' data, each rounded up to whole pages."""
    return sum(-(-array.nbytes // page) * page for array in arrays if array is not None)


def buffer_bytes(arrays: LayerTensors, page: int = 1) -> int:
    """Return the bytes of the evaluated arrays' buffers, shared or not, each rounded up to whole pages."""
    sizes = (mx.get_array_buffer_size(array) for array in arrays_of(arrays) if array is not None)
    return sum(-(-size // page) * page for size in sizes)


def buffers_of(arrays: LayerTensors) -> int:
    return sum(array is not None for array in arrays)


def arrays_of(tensors: LayerTensors) -> tuple[mx.array | None, ...]:
    """Return the tensors that are here."""
    return tuple(tensor for tensor in tensors if not isinstance(tensor, RemoteTensors))


def _kinds(cache: Cache) -> set[str]:
    """Return the names of the layers' classes, those of other processes included."""
    remote = [layer.remote.kinds for layer in _remote_layers(cache)]
    return {_class_name(layer) for layer in flat_layers(cache)}.difference({"RemoteLayers"}).union(*remote)


def _remote_layers(cache: Cache) -> list[RemoteLayers]:
    return [layer for layer in cache if isinstance(layer, RemoteLayers)]


def _per_token_layers(cache: Cache) -> list[Any]:
    return [layer for layer in flat_layers(cache) if _class_name(layer) in _PER_TOKEN]


def _tensors_by_layer(cache: Cache, kv: Sequence[mx.array | None]) -> Iterator[Sequence[mx.array | None]]:
    quantized = [_class_name(layer) in _QUANTIZED for layer in _per_token_layers(cache)]
    end = _OWN * len(quantized)
    own = [kv[at : at + _OWN] for at in range(0, end, _OWN)]
    chosen = [tensors for tensors, is_quantized in zip(own, quantized, strict=True) if is_quantized]
    unpacked = unpack(chosen, [array for array in kv[end:] if array is not None])
    for tensors, is_quantized in zip(own, quantized, strict=True):
        yield next(unpacked) if is_quantized else tensors


def _kv_tensors(layer: Any) -> Sequence[mx.array | None]:
    """Return a per-token layer's arrays, whose third axis is tokens."""
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
    """Concatenate arrays, with zeros for `added` more tokens, and start the evaluation."""
    rows, heads, _, width = parts[0].shape
    room = mx.zeros((rows, heads, added, width), dtype=parts[0].dtype)
    whole = mx.concatenate([*parts, room], axis=2)
    mx.async_eval(whole)
    return whole


def _alias(array: mx.array | None) -> mx.array | None:
    """Return another Python object for the same array, since item assignment changes the object itself."""
    return None if array is None else array[...]


def _copy(array: mx.array) -> mx.array:
    return mx.contiguous(array)


def _class_name(layer: Any) -> str:
    return type(layer).__name__


# Packing of quantized layers' scales and biases into few arrays.
#
# Each array is a device buffer of at least a page, and devices may limit the number of buffers. The scales
# of one layer in a node of 32 tokens take only 1 kB.

_HALF = TENSORS_PER_LAYER // 2  # Number of arrays for the keys of a layer, and likewise for its values
_SMALL = _HALF - 1
"""Number of arrays with scales and biases for the keys of a layer, and likewise for its values."""


def pack(layers: Sequence[Sequence[mx.array | None]]) -> list[mx.array]:
    """Join the scales and biases of quantized layers along the heads.

    Those of all layers' keys come first, then those of the values. Neighbours are joined if they have the
    same width and dtype, which gives one array for most models, and two if keys and values differ.

    Args:
        layers: Unevaluated `QuantizedLayer.kv_tensors` of each layer; None values for an empty layer.

    Returns:
        New arrays `[1, heads, tokens, width]`.
    """
    small = [
        tensor
        for first in (0, _HALF)
        for layer in layers
        for tensor in layer[first + 1 : first + _HALF]
        if tensor is not None
    ]
    runs = groupby(small, key=lambda tensor: (tensor.shape[3], tensor.dtype))
    return [mx.contiguous(mx.concatenate(list(run), axis=1)) for _, run in runs]


def unpack(
    numbers: Sequence[Sequence[mx.array | None]], packed: Sequence[mx.array]
) -> Iterator[list[mx.array | None]]:
    """Yield `QuantizedLayer.kv_tensors` of each layer, as views. `numbers`: quantized keys and values of each
    layer; None for an empty layer; `packed`: result of `pack`.
    """
    stored = [(keys, values) for keys, values in numbers if keys is not None and values is not None]
    heads = [pair[part].shape[1] for part in (0, 1) for pair in stored for _ in range(_SMALL)]
    small = _places(heads, packed)
    index = 0
    for keys, values in numbers:
        if keys is None or values is None:
            yield [None] * TENSORS_PER_LAYER
            continue
        of_values = index + _SMALL * len(stored)
        scales_of_keys, scales_of_values = (
            [array[:, place] for array, place in small[first : first + _SMALL]]
            for first in (index, of_values)
        )
        yield [keys, *scales_of_keys, values, *scales_of_values]
        index += _SMALL


def _places(heads: Sequence[int], packed: Sequence[mx.array]) -> list[tuple[mx.array, slice]]:
    places: list[tuple[mx.array, slice]] = []
    arrays, first = list(packed), 0
    for count in heads:
        if first == arrays[0].shape[1]:
            arrays, first = arrays[1:], 0
        places.append((arrays[0], slice(first, first + count)))
        first += count
    return places
