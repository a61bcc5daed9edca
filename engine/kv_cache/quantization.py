"""A model with quantized KV caches in layers that allow it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.batching import new_mergeable_cache
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.quantized_caches import QuantizedCache
from greenroom.schemas.logs import get_logger

GROUP_SIZES = (64, 32)
"""Group sizes in numbers per scale, in order of preference.

MLX also has 128, which costs accuracy and saves little.
"""

log = get_logger(__name__)


class QuantizingModel:
    """A wrapper of a model that makes quantized caches.

    Args:
        model: Wrapped model.
        kv_bits: Bits per stored number, 4 or 8.
        group_sizes: Group size of each layer, with lists of caches flattened; None leaves a layer
            unquantized.
    """

    def __init__(self, model: Any, kv_bits: int, group_sizes: Sequence[int | None]) -> None:
        self._model = model
        self.kv_bits = kv_bits
        self.group_sizes = tuple(group_sizes)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._model(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def make_cache(self) -> Cache:
        """Return an empty plain cache, quantized where possible."""
        return self._quantize(caches.new_cache(self._model))

    def make_mergeable_cache(self) -> Cache:
        """Return an empty plain cache that can be merged, even if the model's rows are not batched now."""
        return self._quantize(new_mergeable_cache(self._model))

    def _quantize(self, cache: Cache) -> Cache:
        return _quantize_layers(cache, self.kv_bits, iter(self.group_sizes))


def quantize_kv(model: Any, kv_bits: int | None) -> Any:
    """Return the model with quantized keys and values in its full-attention layers, if possible.

    Sliding windows and recurrent states stay unquantized, since they do not grow. A trial run shows whether
    the model's attention supports quantized caches.

    Args:
        model: Model to wrap.
        kv_bits: Bits per stored number, 4 or 8; None returns the model unchanged.
    """
    if kv_bits is None:
        return model
    group_sizes = _group_sizes(model)
    if not any(group_sizes):
        log.warning("kv cache stays unquantized", reason="no layer's cache can be quantized in groups")
        return model
    quantizing_model = QuantizingModel(model, kv_bits, group_sizes)
    try:
        _check_attention(quantizing_model)
    except Exception as error:  # An architecture may raise anything for inputs that it does not expect.
        raise_unless_own(error)
        log.warning("kv cache stays unquantized", reason=f"the model's attention cannot use it: {error}")
        return model
    quantized = sum(size is not None for size in group_sizes)
    log.info("kv cache quantized", bits=kv_bits, layers=quantized, of=len(group_sizes))
    return quantizing_model


def _group_sizes(model: Any) -> list[int | None]:
    """Return the group size of each layer, from the shape of its keys and values."""
    cache = caches.new_cache(model)
    mx.eval(model(mx.array([[0]]), cache=cache))
    return [_group_size(layer) for layer in caches.flat_layers(cache)]


def _group_size(layer: Any) -> int | None:
    if type(layer).__name__ != "KVCache" or layer.keys is None:
        return None
    widths = (layer.keys.shape[-1], layer.values.shape[-1])
    fitting = (size for size in GROUP_SIZES if all(width and width % size == 0 for width in widths))
    return next(fitting, None)


def _check_attention(model: QuantizingModel) -> None:
    """Run a lone prefill chunk and a step of a padded batch, the two uses of attention."""
    rows = [model.make_mergeable_cache() for _ in range(2)]
    for length, cache in enumerate(rows, 2):
        mx.eval(model(mx.array([[0] * length]), cache=cache))
    if caches.can_batch(rows[0]):
        mx.eval(model(mx.array([[0], [0]]), cache=caches.merge(rows)))


def _quantize_layers(layers: Iterable[Any], kv_bits: int, group_sizes: Iterator[int | None]) -> Cache:
    made: Cache = []
    for layer in layers:
        inner = getattr(layer, "caches", None)
        if inner is not None:
            layer.caches = tuple(_quantize_layers(inner, kv_bits, group_sizes))
            made.append(layer)
        else:
            size = next(group_sizes)
            made.append(layer if size is None else QuantizedCache(kv_bits, size))
            if getattr(layer, "merge", None) is None:  # The model's rows are not batched.
                made[-1].merge = None
    return made
