"""A part of a model: the layers of one rank, between what it receives and what it sends.

The library's own code computes a part: the other ranks' layers are replaced by ones that return their input,
and the first own layer takes what came from the rank before. A lazy pass over the unread weights shows
beforehand whether an architecture is such a chain, so no list of architectures is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import mlx.core as mx
from mlx import nn

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.loading.batching_patches import KNOWN_FAULTS
from greenroom.engine.loading.read_weights import read_operations


class NoChainError(ValueError):
    """An architecture whose layers cannot be divided among ranks, with the reason as a sentence's end."""


@attrs.frozen(eq=False)
class Chain:
    """The layers of a model, each of which takes the output of the one before.

    Args:
        layers: The model's own list of layers.
        caches: Indices of the caches of each layer.
        width: Width of the hidden state, and `dtypes` its type before each layer.
    """

    layers: list[Any]
    caches: tuple[tuple[int, ...], ...]
    width: int
    dtypes: tuple[mx.Dtype, ...]


def trace_chain(model: Any) -> Chain:
    """Find the chain of a model's layers by a lazy pass of one token. Raises NoChainError: it has none."""
    architecture = type(model).__module__.rpartition(".")[2]
    if architecture in KNOWN_FAULTS:
        raise NoChainError(f"the mends of {architecture}'s batches do not work in parts of it yet")
    layers = _list_of_layers(model)
    cache = caches.new_cache(model)
    places = {id(each): index for index, each in enumerate(cache)}
    calls: list[tuple[int, Any, Any, tuple[int, ...]]] = []
    classes = [type(layer) for layer in layers]
    for index, layer in enumerate(layers):

        def note(call: Callable[..., Any], x: Any, *rest: Any, at: int = index, **named: Any) -> Any:
            others = (*rest, *named.values())
            if any(isinstance(each, mx.array) for each in others):
                raise NoChainError("its layers take more than the hidden state")
            result = call(x, *rest, **named)
            used = tuple(places[id(each)] for each in others if id(each) in places)
            calls.append((at, x, result, used))
            return result

        _intercept(layer, note)
    try:
        model(mx.array([[0]]), cache=cache)
    finally:
        for layer, kind in zip(layers, classes, strict=True):
            layer.__class__ = kind
    inputs, outputs = [call[1] for call in calls], [call[2] for call in calls]
    in_order = [call[0] for call in calls] == list(range(len(layers)))
    linked = all(after is before for before, after in zip(outputs, inputs[1:], strict=False))
    if not (in_order and linked and all(isinstance(each, mx.array) and each.ndim == 3 for each in inputs)):
        raise NoChainError("its layers are no chain of which each takes the output of the one before")
    used = [place for call in calls for place in call[3]]
    if sorted(used) != list(range(len(cache))):
        raise NoChainError("some of its layers share a KV cache")
    return Chain(layers, tuple(call[3] for call in calls), inputs[0].shape[2], tuple(x.dtype for x in inputs))


class Part:
    """The layers `start` to `stop` of a model, which is changed in place.

    Args:
        model: One of mlx-lm's, with lazy weights.
        chain: Its chain, from `trace_chain`.

    Attributes:
        receive: Function that returns the hidden state of the rank before, given shape and type.
        share: Fraction of the layers that are its own.
        hidden: Output of the last own layer, of the latest pass.
        other_kinds: Names of the classes of the other ranks' caches.
    """

    def __init__(self, model: Any, chain: Chain, start: int, stop: int) -> None:
        self.hidden: mx.array | None = None
        self.receive: Callable[[tuple[int, ...], mx.Dtype], mx.array] = mx.zeros
        self.start, self.is_last = start, stop == len(chain.layers)
        self.share = (stop - start) / len(chain.layers)
        self._model, whole = model, caches.new_cache(model)
        own = [place for index in range(start, stop) for place in chain.caches[index]]
        self._empty, self._stand_ins = [whole[place] for place in own], _stand_ins(whole, own)
        others = [each for place, each in enumerate(whole) if place not in own]
        self.other_kinds = frozenset(type(each).__name__ for each in caches.flat_layers(others))
        dtype, width = chain.dtypes[start], chain.width

        def take(call: Callable[..., Any], x: mx.array, *rest: Any, **named: Any) -> Any:
            received = self.receive((*x.shape[:2], width), dtype) if start else x
            return call(received, *rest, **named)

        def keep(call: Callable[..., Any], x: mx.array, *rest: Any, **named: Any) -> Any:
            self.hidden = call(x, *rest, **named)
            return self.hidden

        _intercept(chain.layers[start], take)
        _intercept(chain.layers[stop - 1], keep)
        for index, layer in enumerate(chain.layers):
            if not start <= index < stop:
                chain.layers[index] = _Elsewhere(layer)
        self._drop_unused(chain.layers[start:stop], _Unused((width,), dtype))

    def new_cache(self) -> Cache:
        """Return an empty plain cache of the own layers."""
        return copy.deepcopy(self._empty)

    def compute(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Build the pass of the own layers over tokens `[rows, tokens]`, lazily; return the logits, which
        mean something on the last part alone.
        """
        logits: mx.array = self._model(tokens, cache=self.spread(cache))
        return logits

    def spread(self, cache: Cache) -> list[Any]:
        """Return the own layers' caches at their places in the whole model.

        At the others' places there is one of the same kind, or None: the library makes masks of them.
        """
        return [None if index is None else cache[index] for index in self._stand_ins]

    def _drop_unused(self, own_layers: Sequence[Any], stand_in: _Unused) -> None:
        """Drop the modules outside of the layers that no output of this part depends on."""
        from mlx.utils import tree_flatten, tree_unflatten

        own = self.new_cache()
        logits = self.compute(mx.array([[0]]), own)
        outputs = [logits if self.is_last else self.hidden, caches.state(own)]
        flat = [each for _, each in tree_flatten(outputs) if isinstance(each, mx.array)]
        needed = set(read_operations(flat))
        kept = {id(module) for layer in own_layers for module in layer.modules()}
        unused = []
        for path, module in tree_flatten(self._model.leaf_modules(), is_leaf=nn.Module.is_module):
            arrays = [each for _, each in tree_flatten(module.parameters())]
            if arrays and id(module) not in kept and not needed & set(read_operations(arrays)):
                unused.append((path, stand_in))
        if unused:
            self._model.update_modules(tree_unflatten(unused))
        self.hidden = None


class _Elsewhere(nn.Module):  # type: ignore[misc]
    """A layer of another rank: returns its input, and has the layer's plain attributes."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        for name, value in vars(layer).items():
            if not name.startswith("_") and isinstance(value, bool | int | float | str | None):
                setattr(self, name, value)

    def __call__(self, x: mx.array, *rest: Any, **named: Any) -> mx.array:
        return x


class _Unused(nn.Module):  # type: ignore[misc]
    """A module whose result no one needs here: a hidden state of zeros for tokens, else its input."""

    def __init__(self, shape: tuple[int, ...], dtype: mx.Dtype) -> None:
        super().__init__()
        self._shape, self._dtype = shape, dtype

    def __call__(self, x: mx.array, *rest: Any, **named: Any) -> mx.array:
        if mx.issubdtype(x.dtype, mx.integer):
            return mx.zeros((*x.shape, *self._shape), self._dtype)
        return x

    as_linear = __call__


def _intercept(target: Any, call: Callable[..., Any]) -> None:
    """Pass calls of a module to `call`, which is given the module's own call before the arguments."""
    kind = type(target)

    def intercepted(self: Any, *given: Any, **named: Any) -> Any:
        return call(lambda *more, **also: kind.__call__(self, *more, **also), *given, **named)

    target.__class__ = type(kind.__name__, (kind,), {"__call__": intercepted, "__module__": kind.__module__})


def _list_of_layers(model: Any) -> list[Any]:
    """Return the list itself that the model computes with; its property `layers` may return a copy."""
    first, count = model.layers[0], len(model.layers)
    for module in model.modules():
        for value in module.values():
            if isinstance(value, list) and len(value) == count and value and value[0] is first:
                return value
    raise NoChainError("its layers are not in one list")


def _stand_ins(whole: Sequence[Any], own: Sequence[int]) -> list[int | None]:
    """Return for each cache of the model the index of the own cache that stands in for it."""
    kinds = [(type(each), getattr(each, "max_size", None)) for each in whole]
    own_kinds = [kinds[place] for place in own]
    return [
        own.index(place) if place in own else own_kinds.index(kind) if kind in own_kinds else None
        for place, kind in enumerate(kinds)
    ]
