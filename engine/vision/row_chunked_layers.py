"""Layers whose rows are independent, computed a few rows at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
from mlx import nn

from greenroom.engine.vision.split_attention import SplitAttention

_PIECE_WORK = {"cpu": 1e7, "gpu": 1e11}
"""Floating-point operations that take a device about five to ten milliseconds."""

_ELEMENT_WORK = 24
"""Operations counted per output element for an exponential and other elementwise work between layers."""

_ROWWISE_WORK = 100
"""Operations counted per element of an activation or a norm, for the same reason."""

_TILE = {"cpu": 16, "gpu": 32}
"""Rows that a device computes together."""

_JOINED = 32
"""Number of parts concatenated at once."""

_LINEAR = (nn.Linear, nn.QuantizedLinear)
_ROWWISE = (nn.LayerNorm, nn.RMSNorm, nn.GELU, nn.SiLU)
_SPLIT = (*_LINEAR, *_ROWWISE, nn.Conv2d, nn.Conv3d)

_patching = threading.Lock()


class RowChunkedLayers:
    """Replaces a module's layers temporarily and records arrays to evaluate, so that no piece takes long.

    The result is the same: a linear layer's rows, a convolution's images and an attention's queries are
    independent. Attention inside a compiled function cannot be split: see `uncompile_attention`.
    """

    def __init__(self) -> None:
        device = "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"
        self._limit, self._tile = _PIECE_WORK[device], _TILE[device]
        self._pieces: list[list[mx.array]] = []
        self._open: list[mx.array] = []
        self._open_work = 0.0

    def pop_pieces(self) -> Iterator[list[mx.array]]:
        """Yield groups of arrays to evaluate together, in order; each is released here once yielded."""
        pieces = [*self._pieces, self._open] if self._open else self._pieces
        self._pieces, self._open, self._open_work = [], [], 0.0
        pieces.reverse()
        while pieces:
            yield pieces.pop()  # From now on only arrays that depend on it keep it alive.

    @contextmanager
    def replacing(self, module: Any, skip: Container[str] = ()) -> Iterator[None]:
        """Replace the layers of a module, and attention on this thread, within the context.

        Args:
            skip: Names of children to leave alone.
        """
        replaced: list[tuple[Any, Any, Any]] = []
        attend, thread = mx.fast.scaled_dot_product_attention, threading.get_ident()

        def attend_here(*positional: Any, **named: Any) -> mx.array:
            if threading.get_ident() != thread:
                return attend(*positional, **named)
            return self._attend(attend, *positional, **named)

        with _patching:
            mx.fast.scaled_dot_product_attention = attend_here
            try:
                self._replace(module, replaced, skip)
                yield
            finally:
                mx.fast.scaled_dot_product_attention = attend
                for holder, key, layer in replaced:
                    holder[key] = layer

    def _replace(self, holder: Any, replaced: list[tuple[Any, Any, Any]], skip: Container[str] = ()) -> None:
        for key, child in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if key in skip:
                continue
            if isinstance(child, _SPLIT):
                replaced.append((holder, key, child))
            elif isinstance(child, dict | list):
                self._replace(child, replaced)
        for at, key, child in replaced:
            if at is holder:
                apply = self._convolve
                if isinstance(child, (*_LINEAR, *_ROWWISE)):
                    apply = self._apply_linear if isinstance(child, _LINEAR) else self._apply_rowwise
                holder[key] = ModuleProxy(child, lambda x, layer=child, apply=apply: apply(layer, x))

    def _apply_linear(self, layer: Any, x: mx.array) -> mx.array:
        outputs = layer.weight.shape[0]
        rows = x.reshape(-1, x.shape[-1])
        work = outputs * (2.0 * x.shape[-1] + _ELEMENT_WORK)
        parts = self._in_pieces(rows.shape[0], work, lambda begin, end: layer(rows[begin:end]), self._tile)
        return _concatenated(parts).reshape(*x.shape[:-1], outputs)

    def _apply_rowwise(self, layer: Any, x: mx.array) -> mx.array:
        rows = x.reshape(-1, x.shape[-1])
        work = float(x.shape[-1] * _ROWWISE_WORK)
        parts = self._in_pieces(rows.shape[0], work, lambda begin, end: layer(rows[begin:end]), 1)
        return _concatenated(parts).reshape(x.shape)

    def _convolve(self, layer: Any, x: mx.array) -> mx.array:
        strides = layer.stride if isinstance(layer.stride, tuple | list) else [layer.stride]
        places = math.prod(x.shape[1:-1]) / math.prod(strides)
        work = 2.0 * layer.weight.size * max(places, 1.0)
        tile = math.ceil(self._tile / max(places, 1.0))
        return _concatenated(self._in_pieces(x.shape[0], work, lambda begin, end: layer(x[begin:end]), tile))

    def _attend(
        self, attend: Callable[..., mx.array], queries: mx.array, *others: Any, **named: Any
    ) -> mx.array:
        rows, heads, count, width = queries.shape
        work = float(others[0].shape[2] * (4 * width + _ELEMENT_WORK))
        whole = rows * heads * count * work
        if whole <= self._limit or isinstance(named.get("mask"), str) or len(others) > 2:
            return self._note(attend(queries, *others, **named), whole)
        attention = SplitAttention(attend, queries, others[0], others[1], named)
        for operand in attention.operands:
            self._note(operand, float(operand.size))
        some = attention.heads_at_once(work, self._limit, self._tile)

        def heads_from(first: int, row: int) -> mx.array:
            own = min(some, heads - first)
            part = partial(attention.part, row, first, own)
            return _concatenated(self._in_pieces(count, work * own, part, self._tile), axis=2)

        each_row = [
            _concatenated([heads_from(first, row) for first in range(0, heads, some)], axis=1)
            for row in range(rows)
        ]
        return _concatenated(each_row)

    def _in_pieces(
        self, count: int, work: float, part: Callable[[int, int], mx.array], tile: int
    ) -> list[mx.array]:
        """Return the outputs of `part` over spans of `count` rows, sized so that none exceeds the work limit.

        Args:
            work: Operations per row.
            tile: Number of rows of which each span is a multiple.
        """
        if count * work <= self._limit:
            return [self._note(part(0, count), count * work)]
        step = -(-max(1, int(self._limit / work)) // tile) * tile
        spans = [(begin, min(begin + step, count)) for begin in range(0, count, step)]
        return [self._note(part(begin, end), work * (end - begin)) for begin, end in spans]

    def _note(self, output: mx.array, work: float) -> mx.array:
        """Add an output to the current piece, or begin a new piece if its work would exceed the limit."""
        if self._open and self._open_work + work > self._limit:
            self._pieces.append(self._open)
            self._open, self._open_work = [], 0.0
        self._open.append(output)
        self._open_work += work
        return output


def _concatenated(parts: list[mx.array], axis: int = 0) -> mx.array:
    """Return the parts concatenated in groups: one large concatenation has quadratic cost."""
    while len(parts) > 1:
        begins = range(0, len(parts), _JOINED)
        parts = [mx.concatenate(parts[begin : begin + _JOINED], axis=axis) for begin in begins]
    return parts[0]


class ModuleProxy:
    """A proxy of a module with another `__call__`."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self._module = module
        self._call = call

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._call(*positional, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
