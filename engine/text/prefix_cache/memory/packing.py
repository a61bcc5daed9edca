"""Packing of quantized layers' scales and biases into few arrays.

Each array is a device buffer of at least a page, and devices may limit the number of buffers. The scales of
one layer in a node of 32 tokens take only 1 kB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import mlx.core as mx

from greenroom.engine.kv_cache.quantized_layer import TENSORS_PER_LAYER

_HALF = TENSORS_PER_LAYER // 2
"""Number of arrays for the keys of a layer, and likewise for its values."""
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
    """Yield `QuantizedLayer.kv_tensors` of each layer, as views.

    Args:
        numbers: Quantized keys and values of each layer; None for an empty layer.
        packed: Result of `pack`.
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
    """Return the packed array and head range of each joined tensor."""
    places: list[tuple[mx.array, slice]] = []
    arrays, first = list(packed), 0
    for count in heads:
        if first == arrays[0].shape[1]:
            arrays, first = arrays[1:], 0
        places.append((arrays[0], slice(first, first + count)))
        first += count
    return places
