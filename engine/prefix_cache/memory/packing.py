"""Scales and biases of quantised layers, in as few arrays as can be.

Each array is a buffer of the device, which may count them and gives none less than a page: of a node of 32
tokens the scales of a layer are 1 kB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import mlx.core as mx

from greenroom.engine.kv_cache.quantized_layer import TENSORS_PER_LAYER

_HALF = TENSORS_PER_LAYER // 2
"""Arrays of the keys of a layer, and of its values."""
_SMALL = _HALF - 1
"""Of these, scales and biases."""


def pack(layers: Sequence[Sequence[mx.array | None]]) -> list[mx.array]:
    """Return the scales and biases of quantised layers, joined along the heads.

    Those of the keys of all layers come first, then those of the values. What follows each other is joined
    if it has one width and type, which makes one array of most models, and two where keys and values differ.

    Args:
        layers: What `QuantizedLayer.kv_tensors` holds, not evaluated; of None where a layer holds nothing.

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
    """Yield what `QuantizedLayer.kv_tensors` holds, layer by layer, as views.

    Args:
        numbers: Of each layer, those of its keys and of its values; None where it holds nothing.
        packed: As `pack` returned them.
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
    """Return in which array each of the joined ones lies, and at which heads."""
    places: list[tuple[mx.array, slice]] = []
    arrays, first = list(packed), 0
    for count in heads:
        if first == arrays[0].shape[1]:
            arrays, first = arrays[1:], 0
        places.append((arrays[0], slice(first, first + count)))
        first += count
    return places
