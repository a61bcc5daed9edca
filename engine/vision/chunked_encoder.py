"""A vision tower computed in pieces, so that steps of running sequences fit in between."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Container, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import mlx.core as mx
from mlx import nn

from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.schemas.logs import get_logger

_TOWERS = ("vision_tower", "vision_model", "visual", "vision_encoder")
"""Names of the vision tower in mlx-vlm's models."""

log = get_logger(__name__)


class _TowerCalledError(Exception):
    """Raised when a model calls its tower; holds the arguments."""

    def __init__(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__("the tower was called")
        self.positional, self.named = positional, named


class ChunkedEncoder:
    """Computes a model's output for an image: call `advance` until `is_done`, then `result`.

    MLX evaluates lazily. The tower is called once, which builds its whole graph; then the parts of its layers
    are evaluated one after the other, and likewise the projection into the language model. A tower with an
    unknown name, or whose layers cannot be split, is computed in one piece by `result`.

    Args:
        model: A model of mlx-vlm. Its tower is replaced only while `advance` runs.
        embed: Calls the model's `get_input_embeddings`, perhaps more than once.
    """

    def __init__(self, model: Any, embed: Callable[[], Any]) -> None:
        self._model = model
        self._embed = embed
        self._name = next((name for name in _TOWERS if callable(model.get(name))), "")
        self._result: Any = None
        self._pieces: Generator[list[mx.array], None, Any] | None = None
        self.is_done = not self._name

    def advance(self) -> None:
        if self._pieces is None:
            self._pieces = _build(self._model, self._name, self._embed)
        try:
            mx.eval(next(self._pieces))
            return
        except StopIteration as built:
            self._result = built.value
        except Exception as error:  # The library's code may fail with replaced layers.
            raise_unless_own(error)
            self._pieces = None  # Frees the partly computed graph; the image is computed anew.
            log.info("image computed in one piece", reason=f"{type(error).__name__}: {error}")
        self.is_done = True

    def result(self) -> Any:
        """Return the output of `embed`; unevaluated, except for the tower's part."""
        return self._embed() if self._result is None else self._result


def _build(model: Any, name: str, embed: Callable[[], Any]) -> Generator[list[mx.array], None, Any]:
    """Build the graph of the tower and of the projection; yield arrays to evaluate, in order.

    The generator holds no reference to its caller, so an abandoned graph is freed at once with its arrays.

    Returns:
        The output of `embed`; None if it did not call the tower.
    """
    tower, split = model[name], RowChunkedLayers()
    try:
        with _tower_replaced(model, name, _raise_call):
            embed()
    except _TowerCalledError as error:
        positional, named = error.positional, error.named
    else:
        return None
    with split.replacing(tower):
        output = tower(*positional, **named)
    del positional, named
    yield from split.pop_pieces()
    rest = split.replacing(model, skip=(name, "language_model"))
    with rest, _tower_replaced(model, name, lambda *_, **__: output):
        result = embed()
    yield from split.pop_pieces()
    return result


@contextmanager
def _tower_replaced(model: Any, name: str, call: Callable[..., Any]) -> Iterator[None]:
    tower = model[name]
    model[name] = ModuleProxy(tower, call)
    try:
        yield
    finally:
        model[name] = tower


def _raise_call(*positional: Any, **named: Any) -> Any:
    raise _TowerCalledError(positional, named)


_PIECE_WORK = {"cpu": 1e7, "gpu": 1e11}
"""Floating-point operations that take a device about five to ten milliseconds."""

_ELEMENT_WORK = 24
"""Operations counted per output element for an exponential and other elementwise work between layers."""

_ROWWISE_WORK = 100  # Operations counted per element of an activation or a norm, for the same reason

_TILE = {"cpu": 16, "gpu": 32}  # Rows that a device computes together

_JOINED = 32  # Number of parts concatenated at once

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
        """Replace the layers of a module, and attention on this thread, within the context."""
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
        `tile`: number of rows of which each span is a multiple.
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
    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self._module = module
        self._call = call

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._call(*positional, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class SplitAttention:
    """An attention operation that can be computed in parts.

    Args:
        attend: `mx.fast.scaled_dot_product_attention`.
        queries: `[rows, heads, queries, width]`.
        keys: `[rows, KV heads, keys, width]`; several query heads may share a KV head.
        values: Same layout as `keys`.
        named: Further arguments of `attend`. A mask must be an array or None.
    """

    def __init__(
        self,
        attend: Callable[..., mx.array],
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        named: dict[str, Any],
    ) -> None:
        self._attend = attend
        self._queries, self._named = queries, named
        self._shared = queries.shape[1] // keys.shape[1]
        on_cpu = mx.default_device() != mx.Device(mx.gpu)
        self._keys, self._values = (_as_multiplied(keys), mx.contiguous(values)) if on_cpu else (keys, values)

    @property
    def operands(self) -> list[mx.array]:
        return [self._keys, self._values]

    def heads_at_once(self, work: float, limit: float, tile: int) -> int:
        """Return the number of heads per part.

        Args:
            work: Operations for one query in one head.
            limit: Operations per part.
            tile: Smallest number of queries per part.
        """
        wanted = int(limit / (work * tile)) // self._shared * self._shared
        return min(max(wanted, self._shared), self._queries.shape[1])

    def part(self, row: int, first: int, count: int, begin: int, end: int) -> mx.array:
        """Return one row's attention output for queries `begin` to `end` and `count` heads from `first`."""
        heads = slice(first, first + count)
        theirs = slice(first // self._shared, (first + count) // self._shared)
        rest = dict(self._named)
        if rest.get("mask") is not None:
            rest["mask"] = self._mask(rest["mask"], row, heads, slice(begin, end))
        if rest.get("sinks") is not None:
            rest["sinks"] = rest["sinks"][heads]
        own = slice(row, row + 1)
        keys, values = self._keys[own, theirs], self._values[own, theirs]
        return self._attend(self._queries[own, heads, begin:end], keys, values, **rest)

    def _mask(self, mask: mx.array, row: int, heads: slice, span: slice) -> mx.array:
        rows, all_heads, count, _ = self._queries.shape
        if mask.ndim == 4 and mask.shape[0] == rows:
            mask = mask[row : row + 1]
        if mask.ndim > 2 and mask.shape[-3] == all_heads:
            mask = mask[..., heads, :, :]
        return mask[..., span, :] if mask.ndim > 1 and mask.shape[-2] == count else mask


def _as_multiplied(keys: mx.array) -> mx.array:
    """Return keys in the layout of CPU matrix products, which would otherwise copy them for each part."""
    return mx.contiguous(keys.swapaxes(-1, -2)).swapaxes(-1, -2)


_LIBRARY = "mlx_vlm.models."
_LANGUAGE = ".language"  # Suffix of modules that are never split and stay compiled

_ATTENTION = "scaled_dot_product_attention"


def uncompile_attention() -> None:
    """Replace compiled attention functions of imported towers by the functions they were compiled from.

    A compiled function is traced once, on arrays that cannot be evaluated, and is not called again for the
    same shapes: attention inside it could not be computed in pieces. Compilation gains nothing there, since
    it only fuses elementwise operations. This runs once for all threads, before a tower is first called;
    MLX's own switch would disable compilation for all models of the process.
    """
    for module in [module for name, module in sys.modules.items() if _may_be_split(name)]:
        for name, function in attending_functions(module).items():
            setattr(module, name, _plain(function))


def attending_functions(module: ModuleType) -> dict[str, Any]:
    """Return a module's compiled functions that contain attention, by name."""
    compiled = type(mx.compile(lambda array: array))
    found = {name: value for name, value in vars(module).items() if isinstance(value, compiled)}
    return {name: value for name, value in found.items() if _attends(value.__code__)}


def _may_be_split(module: str) -> bool:
    return module.startswith(_LIBRARY) and not module.endswith(_LANGUAGE)


def _attends(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return _ATTENTION in code.co_names or any(map(_attends, inner))


def _plain(compiled: Any) -> Callable[..., Any]:
    """Return the function a compiled one was made from; MLX's object keeps all its attributes."""
    plain = FunctionType(
        compiled.__code__,
        compiled.__globals__,
        compiled.__name__,
        compiled.__defaults__,
        compiled.__closure__,
    )
    plain.__kwdefaults__ = compiled.__kwdefaults__
    return plain
