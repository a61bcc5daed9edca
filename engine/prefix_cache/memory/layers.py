"""What can be kept of a model's cache, by the classes of its layers.

A *span* layer keeps something for every token, so a part of it is the cache of a part of the prompt. A
*state* layer keeps only what the last token left (a sliding window, a recurrent state): it is good for
exactly the tokens that it has seen. A model with other classes is not kept at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache.caches import Cache, flat_layers
from greenroom.engine.kv_cache.quantized_layer import TENSORS_PER_LAYER

Arrays = tuple[mx.array | None, ...]
"""What is kept of all layers of one sort, flat."""

_QUANTISED = ("QuantizedCache", "BatchedQuantizedCache")
_SPANS = ("KVCache", "BatchKVCache", *_QUANTISED)
_WINDOWS = ("RotatingKVCache", "BatchRotatingKVCache")
_STATES = (*_WINDOWS, "ArraysCache")


def can_keep(cache: Cache) -> bool:
    """Whether every layer is of a class that is known here, exactly."""
    return all(_name(leaf) in (*_SPANS, *_STATES) for leaf in flat_layers(cache))


def has_states(cache: Cache) -> bool:
    """Whether some layer cannot be cut to fewer tokens."""
    return any(_name(leaf) in _STATES for leaf in flat_layers(cache))


def cut_spans(cache: Cache, row: int | None, start: int, stop: int, length: int) -> Arrays:
    """Keys and values of the tokens from `start` to `stop`, copied: nothing else is kept alive by them.

    Args:
        row: Row of a batched cache; None for a plain one.
        length: Tokens that the cache holds of this sequence.
    """
    found: list[mx.array | None] = []
    for leaf in flat_layers(cache):
        if _name(leaf) in _SPANS:
            pad = 0 if row is None else leaf.size() - length
            rows = slice(None) if row is None else slice(row, row + 1)
            for whole in _parts(leaf):
                found.append(None if whole is None else _copy(whole[rows, :, pad + start : pad + stop]))
    return tuple(found)


def slice_spans(spans: Arrays, start: int, stop: int) -> Arrays:
    """A part of what `cut_spans` returned, copied."""
    return tuple(None if whole is None else _copy(whole[:, :, start:stop]) for whole in spans)


def view_spans(spans: Arrays, stop: int) -> Arrays:
    """The beginning of what `cut_spans` returned, not copied."""
    return tuple(None if whole is None else whole[:, :, :stop] for whole in spans)


def cut_states(cache: Cache, row: int | None) -> Arrays:
    """What the layers without spans keep, copied."""
    found: list[mx.array | None] = []
    for leaf in flat_layers(cache):
        name = _name(leaf)
        if name not in _STATES:
            continue
        plain = leaf if row is None else leaf.extract(row)
        if name in _WINDOWS:
            found += [_window(plain, plain.keys), _window(plain, plain.values)]
        else:
            found += [None if array is None else _copy(array) for array in plain.cache]
    return tuple(found)


def restore(cache: Cache, segments: Sequence[Arrays], states: Arrays, length: int) -> None:
    """Fill an empty plain cache; what it is filled from is never written to.

    Args:
        segments: Spans that follow each other.
        states: As `cut_states` returned them after the last of these tokens.
        length: Tokens of all segments together.
    """
    spans = iter(zip(*segments, strict=True))
    state = iter(states)
    for leaf in flat_layers(cache):
        if _name(leaf) in _SPANS:
            parts = [_join(next(spans)) for _ in _parts(leaf)]
            if parts[0] is not None:
                _refill(leaf, parts, length)
        elif _name(leaf) in _WINDOWS:
            keys, values = _own(next(state)), _own(next(state))
            if keys is not None:
                leaf.keys, leaf.values = keys, values
                leaf.offset, leaf._idx = length, keys.shape[2]
        else:
            leaf.cache = [_own(next(state)) for _ in leaf.cache]


def bytes_of(arrays: Arrays) -> int:
    """Bytes of what the arrays hold."""
    return sum(array.nbytes for array in arrays if array is not None)


def buffer_bytes(arrays: Arrays) -> int:
    """Bytes that evaluated arrays occupy, whoever else uses their buffers."""
    return sum(mx.get_array_buffer_size(array) for array in arrays if array is not None)


def _parts(layer: Any) -> Sequence[mx.array | None]:
    """What a span layer keeps of all tokens, in arrays whose third axis they are."""
    if _name(layer) in _QUANTISED:
        return layer.kv_tensors or (None,) * TENSORS_PER_LAYER
    return layer.keys, layer.values


def _refill(layer: Any, parts: list[mx.array | None], length: int) -> None:
    if _name(layer) in _QUANTISED:
        layer.restore(parts, length)
    else:
        layer.keys, layer.values = parts
        layer.offset = length


def _window(layer: Any, whole: mx.array | None) -> mx.array | None:
    """The tokens that the window still needs, oldest first."""
    if whole is None:
        return None
    ordered = layer._temporal_order(whole)
    return _copy(layer._trim(max(0, ordered.shape[2] - layer.max_size), ordered))


def _join(parts: Sequence[mx.array | None]) -> mx.array | None:
    arrays = [part for part in parts if part is not None]
    if len(arrays) < 2:
        return _own(arrays[0]) if arrays else None
    return mx.concatenate(arrays, axis=2)


def _own(array: mx.array | None) -> mx.array | None:
    """Another Python object for the same array: item assignment changes the object that it is called on."""
    return None if array is None else array[...]


def _copy(array: mx.array) -> mx.array:
    return mx.contiguous(array)


def _name(layer: Any) -> str:
    return type(layer).__name__
