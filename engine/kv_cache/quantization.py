"""A model with quantized KV caches in layers that allow it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache, allocated_tokens, new_mergeable_cache
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.schemas.logs import get_logger

GROUP_SIZES = (64, 32)
"""Group sizes in numbers per scale, in order of preference.

MLX also has 128, which costs accuracy and saves little.
"""

log = get_logger(__name__)


class QuantizingModel:
    """A wrapper of a model that makes quantized caches. `kv_bits`: bits per stored number, 4 or 8;
    `group_sizes`: group size of each layer, with lists of caches flattened; None leaves a layer unquantized.
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


KVTensors = list[mx.array]
"""Packed numbers, scales and biases of the keys, then of the values; each `[rows, heads, tokens, width]`."""

TENSORS_PER_LAYER = 6

Packed = tuple[mx.array, ...]
"""Packed numbers, scales and biases, as `mx.quantized_matmul` takes them."""


class QuantizedLayer:
    """A layer that quantizes each token when it is stored, in groups along a head.

    So a token's stored form depends neither on its prefill chunk nor on other tokens. mlx-lm's attention
    computes with packed numbers if a cache has `bits` and `group_size`.

    Args:
        bits: Bits per number, 4 or 8.
        group_size: Numbers that share a scale and a bias; divides the width of every head.

    Attributes:
        used: Number of tokens stored along the third axis of `kv_tensors`; more may be allocated.
    """

    def __init__(self, bits: int, group_size: int) -> None:
        self.bits = bits
        self.group_size = group_size
        self.kv_tensors: KVTensors | None = None
        self.used = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Packed, Packed]:
        """Store new tokens' keys and values `[rows, heads, tokens, width]`; return those of all tokens."""
        before, self.used = self.used, self.used + keys.shape[2]
        new = [*self._quantize(keys), *self._quantize(values)]
        if self.kv_tensors is None:
            self.kv_tensors = [_zeros(tensor, tensor.shape[0], allocated_tokens(self.used)) for tensor in new]
        elif self.used > self.kv_tensors[0].shape[2]:
            added = allocated_tokens(self.used) - before
            self.kv_tensors = [
                mx.concatenate([tensor[:, :, :before], _zeros(tensor, tensor.shape[0], added)], axis=2)
                for tensor in self.kv_tensors
            ]
        for tensor, numbers in zip(self.kv_tensors, new, strict=True):
            tensor[:, :, before : self.used] = numbers
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Packed, Packed]:
        assert self.kv_tensors is not None
        seen = tuple(tensor[:, :, : self.used] for tensor in self.kv_tensors)
        return seen[: TENSORS_PER_LAYER // 2], seen[TENSORS_PER_LAYER // 2 :]

    def size(self) -> int:
        return self.used

    def empty(self) -> bool:
        return self.kv_tensors is None

    def is_trimmable(self) -> bool:
        return True

    def trim(self, count: int) -> int:
        """Remove up to `count` of the last tokens; return the number removed."""
        count = min(self.used, count)
        self.used -= count
        return count

    @property
    def state(self) -> KVTensors:
        """Arrays whose evaluation leaves nothing of the layer pending."""
        return self.kv_tensors or []

    @property
    def nbytes(self) -> int:
        """Allocated bytes, including free capacity."""
        return sum(tensor.nbytes for tensor in self.kv_tensors or ())

    def _quantize(self, numbers: mx.array) -> Packed:
        return tuple(mx.quantize(numbers, group_size=self.group_size, bits=self.bits))


def stack(layers: Sequence[QuantizedLayer], rows: Sequence[int]) -> KVTensors | None:
    """Return the tensors of several layers stacked as rows, aligned right with the longest. `rows`: number of
    rows of each layer, which an empty layer does not know.
    """
    like = next((layer.kv_tensors for layer in layers if layer.kv_tensors is not None), None)
    if like is None:
        return None
    longest = max(layer.used for layer in layers)
    stacked = [_zeros(tensor, sum(rows), allocated_tokens(longest + 1)) for tensor in like]
    begin = 0
    for layer, count in zip(layers, rows, strict=True):
        for index, tensor in enumerate(layer.kv_tensors or ()):
            left = longest - layer.used
            stacked[index][begin : begin + count, :, left:longest] = tensor[:, :, : layer.used]
        begin += count
    return stacked


def _zeros(like: mx.array, rows: int, tokens: int) -> mx.array:
    return mx.zeros((rows, like.shape[1], tokens, like.shape[3]), dtype=like.dtype)


class QuantizedCache(QuantizedLayer):
    """Quantized cache of one sequence, duck-typed as mlx-lm's `KVCache`."""

    @property
    def offset(self) -> int:
        """Position of the next token."""
        return self.used

    def make_mask(self, tokens: int, return_array: bool = False, window_size: int | None = None) -> Any:
        from mlx_lm.models.cache import create_attention_mask

        return create_attention_mask(
            tokens, offset=self.used, return_array=return_array, window_size=window_size
        )

    def restore(self, kv_tensors: KVTensors, tokens: int) -> None:
        self.kv_tensors, self.used = kv_tensors, tokens

    @staticmethod
    def merge(caches: Sequence[QuantizedCache]) -> BatchedQuantizedCache:
        longest = max(cache.used for cache in caches)
        padding = [longest - cache.used for cache in caches]
        batched = BatchedQuantizedCache(caches[0].bits, caches[0].group_size, padding)
        batched.kv_tensors = stack(caches, [1] * len(caches))
        batched.used = longest
        return batched


class BatchedQuantizedCache(QuantizedLayer):
    """Quantized cache of rows padded on the left, duck-typed as mlx-lm's `BatchKVCache`.

    The padding is known on the host, so reading it does not wait for the device.

    Args:
        padding: Left padding of each row, in tokens.
    """

    def __init__(self, bits: int, group_size: int, padding: Sequence[int]) -> None:
        super().__init__(bits, group_size)
        self._padding = list(padding)
        self._right_padding: list[int] | None = None
        self._arrays: tuple[int, mx.array, mx.array] | None = None

    @property
    def padding(self) -> list[int]:
        """Left padding of each row, in tokens."""
        return self._padding

    @padding.setter
    def padding(self, padding: list[int]) -> None:
        self._padding, self._arrays = padding, None

    @property
    def offset(self) -> mx.array:
        return self._on_device()[0]

    @property
    def left_padding(self) -> mx.array:
        return self._on_device()[1]

    def make_mask(
        self, tokens: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | None:
        """Return the attention mask of each row's next tokens; None if one token may attend to all."""
        from mlx_lm.models.base import create_causal_mask

        if tokens == 1 and not any(self._padding) and window_size is None and not return_array:
            return None
        mask: mx.array = create_causal_mask(
            tokens, offset=self.used, left_padding=self.left_padding, window_size=window_size
        )
        return mask

    def prepare(self, *, lengths: Sequence[int], right_padding: Sequence[int]) -> None:
        """Announce tokens padded on the right, which the causal mask hides from the tokens before them."""
        self._right_padding = list(right_padding)

    def finalize(self) -> None:
        """Move the right padding to the left."""
        right, self._right_padding = self._right_padding, None
        if right is None or self.kv_tensors is None:
            return
        from mlx_lm.models.cache import dynamic_roll

        shifts = mx.array(right)[:, None]
        self.kv_tensors = [dynamic_roll(tensor, shifts, axis=2) for tensor in self.kv_tensors]
        self.padding = [left + more for left, more in zip(self._padding, right, strict=True)]

    def filter(self, rows: mx.array) -> None:
        chosen: Any = rows.tolist()
        padding = [self._padding[row] for row in chosen]
        common = min(padding)
        if self.kv_tensors is not None:
            self.kv_tensors = [tensor[rows][:, :, common:] for tensor in self.kv_tensors]
            self.used -= common
        self.padding = [left - common for left in padding]

    def extend(self, other: BatchedQuantizedCache) -> None:
        longest = max(self.used, other.used)
        self.kv_tensors = stack([self, other], [len(self._padding), len(other.padding)])
        self.padding = [
            *(left + longest - self.used for left in self._padding),
            *(left + longest - other.used for left in other.padding),
        ]
        self.used = longest

    def extract(self, row: int) -> QuantizedCache:
        plain = QuantizedCache(self.bits, self.group_size)
        if self.kv_tensors is not None:
            seen = slice(self._padding[row], self.used)
            tensors = [mx.contiguous(tensor[row : row + 1, :, seen]) for tensor in self.kv_tensors]
            plain.restore(tensors, self.used - self._padding[row])
        return plain

    def _on_device(self) -> tuple[mx.array, mx.array]:
        arrays = self._arrays
        if arrays is None or arrays[0] != self.used:
            offsets = mx.array([self.used - left for left in self._padding])
            padding = mx.array(self._padding) if arrays is None else arrays[2]
            self._arrays = arrays = (self.used, offsets, padding)
        return arrays[1], arrays[2]
