"""A model whose caches are quantised where they can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import structlog

from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.batching import new_mergeable_cache
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.quantized_caches import QuantizedCache

GROUP_SIZES = (64, 32)
"""Numbers that share a scale, the preferred first. MLX also has 128, which costs accuracy to save little."""

log = structlog.get_logger(__name__)


class QuantizingModel:
    """Behaves as the model that it holds, but for the caches that it makes.

    Args:
        kv_bits: Of each number that is kept, 4 or 8.
        group_sizes: Of each layer, with lists of caches taken apart; None keeps that layer as it is.
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
        """Return an empty plain cache."""
        return self._quantize(caches.new_cache(self._model))

    def make_mergeable_cache(self) -> Cache:
        """Return one that can be merged, even if the model's rows are computed alone for now."""
        return self._quantize(new_mergeable_cache(self._model))

    def _quantize(self, cache: Cache) -> Cache:
        return _quantize_layers(cache, self.kv_bits, iter(self.group_sizes))


def quantize_kv(model: Any, kv_bits: int | None) -> Any:
    """Return the model, with caches that keep keys and values of full attention in so few bits, if possible.

    Sliding windows and recurrent states stay as they are: they do not grow. What a model's attention takes
    is found out by trying.

    Args:
        kv_bits: 4, 8, or None for the model as it is.
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
    except Exception as error:  # whatever an architecture makes of what it does not expect
        raise_unless_own(error)
        log.warning("kv cache stays unquantized", reason=f"the model's attention cannot use it: {error}")
        return model
    quantized = sum(size is not None for size in group_sizes)
    log.info("kv cache quantized", bits=kv_bits, layers=quantized, of=len(group_sizes))
    return quantizing_model


def _group_sizes(model: Any) -> list[int | None]:
    """Return the group size of each layer, by what it keeps of a token."""
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
    """Run a prefill chunk alone and a step in a padded batch: all that attention is ever asked for."""
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
            if getattr(layer, "merge", None) is None:  # the model's rows are computed alone
                made[-1].merge = None
    return made
