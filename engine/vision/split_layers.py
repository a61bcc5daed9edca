"""Layers whose rows do not depend on each other, computed some rows at a time."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx import nn

_PIECE_WORK = {"cpu": 1e7, "gpu": 1e11}
"""Floating-point operations that a device does in some five to ten milliseconds."""

_ELEMENT_WORK = 24
"""Operations that an exponential, and what else is done to each number between two layers, counts as."""

_TILE = {"cpu": 16, "gpu": 32}
"""Rows that a device computes together."""

_JOINED = 32
"""Parts that are joined at once."""

_LINEAR = (nn.Linear, nn.QuantizedLinear)
_SPLIT = (*_LINEAR, nn.Conv2d, nn.Conv3d)

_patching = threading.Lock()


class SplitLayers:
    """Replaces layers of a module meanwhile, and notes what to evaluate so that no piece is long.

    What is computed is the same: a linear layer's rows, a convolution's images and an attention's queries
    know nothing of each other.

    Attributes:
        noted: What to evaluate, in that order; what is left then is a short piece too.
    """

    def __init__(self) -> None:
        self.noted: list[mx.array] = []
        device = "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"
        self._limit, self._tile = _PIECE_WORK[device], _TILE[device]
        self._unnoted = 0.0

    @contextmanager
    def replacing(self, module: Any) -> Iterator[None]:
        """Replace the layers of a module, and attention on this thread."""
        replaced: list[tuple[Any, Any, Any]] = []
        attend, thread = mx.fast.scaled_dot_product_attention, threading.get_ident()

        def attend_here(*positional: Any, **named: Any) -> mx.array:
            if threading.get_ident() != thread:
                return attend(*positional, **named)
            return self._attend(attend, *positional, **named)

        with _patching:
            mx.fast.scaled_dot_product_attention = attend_here
            mx.disable_compile()  # compiled functions lose what is evaluated before the rest of their graph
            try:
                self._replace(module, replaced)
                yield
            finally:
                mx.fast.scaled_dot_product_attention = attend
                if not os.environ.get("MLX_DISABLE_COMPILE"):
                    mx.enable_compile()
                for holder, key, layer in replaced:
                    holder[key] = layer

    def _replace(self, holder: Any, replaced: list[tuple[Any, Any, Any]]) -> None:
        for key, child in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(child, _SPLIT):
                replaced.append((holder, key, child))
            elif isinstance(child, dict | list):
                self._replace(child, replaced)
        for at, key, child in replaced:
            if at is holder:
                apply = self._apply_linear if isinstance(child, _LINEAR) else self._convolve
                holder[key] = Stand(child, lambda x, layer=child, apply=apply: apply(layer, x))

    def _apply_linear(self, layer: Any, x: mx.array) -> mx.array:
        outputs = layer.weight.shape[0]
        rows = x.reshape(-1, x.shape[-1])
        work = outputs * (2.0 * x.shape[-1] + _ELEMENT_WORK)
        parts = self._in_pieces(rows.shape[0], work, lambda begin, end: layer(rows[begin:end]))
        return _concatenated(parts).reshape(*x.shape[:-1], outputs)

    def _convolve(self, layer: Any, x: mx.array) -> mx.array:
        strides = layer.stride if isinstance(layer.stride, tuple | list) else [layer.stride]
        places = math.prod(x.shape[1:-1]) / math.prod(strides)
        work = 2.0 * layer.weight.size * max(places, 1.0)
        return _concatenated(self._in_pieces(x.shape[0], work, lambda begin, end: layer(x[begin:end])))

    def _attend(
        self, attend: Callable[..., mx.array], queries: mx.array, *others: Any, **named: Any
    ) -> mx.array:
        rows, heads, count, width = queries.shape
        mask, keys = named.get("mask"), others[0]
        work = float(rows * heads * keys.shape[2] * (4 * width + _ELEMENT_WORK))
        if isinstance(mask, str) or len(others) > 2:
            return self._note(attend(queries, *others, **named), work * count)

        def part(begin: int, end: int) -> mx.array:
            rest = dict(named)
            if isinstance(mask, mx.array) and mask.ndim > 1 and mask.shape[-2] == count:
                rest["mask"] = mask[..., begin:end, :]
            return attend(queries[:, :, begin:end], *others, **rest)

        return _concatenated(self._in_pieces(count, work, part), axis=2)

    def _in_pieces(self, count: int, work: float, part: Callable[[int, int], mx.array]) -> list[mx.array]:
        """Return parts of what `part` makes of so many rows, each of which takes so much work."""
        if count * work <= self._limit:
            return [self._note(part(0, count), count * work)]
        step = -(-max(1, int(self._limit / work)) // self._tile) * self._tile
        begins = range(0, count, step)
        return [self._note(part(begin, begin + step), work * min(step, count - begin)) for begin in begins]

    def _note(self, output: mx.array, work: float) -> mx.array:
        self._unnoted += work
        if self._unnoted >= self._limit:
            self.noted.append(output)
            self._unnoted = 0.0
        return output


def _concatenated(parts: list[mx.array], axis: int = 0) -> mx.array:
    """Return parts behind each other, joined some at a time: many at once cost as their square."""
    while len(parts) > 1:
        begins = range(0, len(parts), _JOINED)
        parts = [mx.concatenate(parts[begin : begin + _JOINED], axis=axis) for begin in begins]
    return parts[0]


class Stand:
    """Has all that a module has, but is called otherwise."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self._module = module
        self._call = call

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._call(*positional, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
