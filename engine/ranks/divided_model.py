"""One rank's part of a model: some of its layers (pipeline), or a share of each (tensor parallelism).

The library's own code computes a part. In a pipeline, the other ranks' layers are replaced by ones that
return their input, and the first own layer takes what came from the rank before. A lazy pass over the unread
weights shows beforehand whether an architecture is such a chain, so no list of architectures is needed.
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


class IndivisibleError(ValueError):
    """A model whose layers cannot be divided among ranks, with the reason as a sentence's end."""


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
    """Find the chain of a model's layers by a lazy pass of a token. Raises IndivisibleError: it has none."""
    architecture = type(model).__module__.rpartition(".")[2]
    if architecture in KNOWN_FAULTS:
        raise IndivisibleError(f"the mends of {architecture}'s batches do not work in parts of it yet")
    layers = _list_of_layers(model)
    cache = caches.new_cache(model)
    places = {id(each): index for index, each in enumerate(cache)}
    calls: list[tuple[int, Any, Any, tuple[int, ...]]] = []
    classes = [type(layer) for layer in layers]
    for index, layer in enumerate(layers):

        def note(call: Callable[..., Any], x: Any, *rest: Any, at: int = index, **named: Any) -> Any:
            others = (*rest, *named.values())
            if any(isinstance(each, mx.array) for each in others):
                raise IndivisibleError("its layers take more than the hidden state")
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
        raise IndivisibleError("its layers are no chain of which each takes the output of the one before")
    used = [place for call in calls for place in call[3]]
    if sorted(used) != list(range(len(cache))):
        raise IndivisibleError("some of its layers share a KV cache")
    return Chain(layers, tuple(call[3] for call in calls), inputs[0].shape[2], tuple(x.dtype for x in inputs))


def even_split(layers: int, ranks: int) -> tuple[int, ...]:
    """Return the number of layers of each rank."""
    return tuple(len(range(rank, layers, ranks)) for rank in range(ranks))


def layers_of(rank: int, split: Sequence[int]) -> tuple[int, int]:
    """Return a rank's layers, `start` to `stop`: rank 0 has the last ones. `split`: number by rank."""
    return sum(split[rank + 1 :]), sum(split[rank:])


def shard(model: Any, chain: Chain, group: Any) -> None:
    """Divide each layer of a model, with lazy weights, among the ranks of a group, as mlx-lm does. Raises
    IndivisibleError: it cannot.
    """
    if not hasattr(model, "shard"):
        raise IndivisibleError("mlx-lm cannot shard its architecture")
    try:
        model.shard(group)
    except (AssertionError, ValueError) as error:  # a width, or groups of quantized weights
        raise IndivisibleError(f"its layers do not divide by {group.size()}: {error}") from error
    mx.eval(mx.random.state)  # holds the weights that new layers had first
    inner = {id(module) for layer in chain.layers for module in layer.modules()}
    outer = [type(module) for module in model.modules() if id(module) not in inner]
    if any(kind.__module__ == nn.AllToShardedLinear.__module__ for kind in outer):
        raise IndivisibleError("mlx-lm shards its head, too, which works with all ranks alone")


class Part:
    """The layers `start` to `stop` of a model, which is changed in place.

    Args:
        model: One of mlx-lm's, with lazy weights.
        chain: Its chain, from `trace_chain`.
        group: Group of ranks that compute each layer together, which `shard` has divided; None if no layer is
            divided.

    Attributes:
        receive: Function that returns the hidden state of the rank before, given shape and type.
        hidden: Output of the last own layer, of the latest pass.
        other_kinds: Names of the classes of the other ranks' caches.
    """

    def __init__(self, model: Any, chain: Chain, start: int, stop: int, group: Any = None) -> None:
        self.hidden: mx.array | None = None
        self.receive: Callable[[Sequence[int], mx.Dtype], mx.array] = mx.zeros
        self.start, self.group = start, group
        self._model, self._call, whole = model, type(model).__call__, caches.new_cache(model)
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
        for layer in (*chain.layers[:start], *chain.layers[stop:]):
            _replace(layer, lambda x: x)
        has_head = stop == len(chain.layers) and (group is None or group.rank() == 0)
        self._drop_unused(chain.layers[start:stop], width, dtype, has_head)

    def new_cache(self) -> Cache:
        """Return an empty plain cache of the own layers."""
        return copy.deepcopy(self._empty)

    def compute(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Build the pass of the own layers over tokens `[rows, tokens]`, lazily; return the logits, which
        mean something on rank 0 alone.

        A pass in which all ranks compute each layer starts at once, so that their transfers have one order;
        the tokens are those of rank 0, and zeros elsewhere.
        """
        if self.group is None:
            return self._pass(tokens, cache)
        logits = self._pass(mx.distributed.all_sum(tokens.astype(mx.int32), group=self.group), cache)
        mx.async_eval(self.hidden, caches.state(cache))
        return logits

    def _pass(self, tokens: mx.array, cache: Cache) -> mx.array:
        logits: mx.array = self._call(self._model, tokens, cache=self.spread(cache))
        return logits

    def spread(self, cache: Cache) -> list[Any]:
        """Return the own layers' caches at their places in the whole model.

        At the others' places there is one of the same kind, or None: the library makes masks of them.
        """
        return [None if index is None else cache[index] for index in self._stand_ins]

    def _drop_unused(self, own_layers: Sequence[Any], width: int, dtype: mx.Dtype, has_head: bool) -> None:
        """Drop the modules outside of the layers that no output of this part depends on."""
        from mlx.utils import tree_flatten

        own = self.new_cache()
        logits = self._pass(mx.array([[0]]), own)
        outputs = [logits if has_head else self.hidden, caches.state(own)]
        flat = [each for _, each in tree_flatten(outputs) if isinstance(each, mx.array)]
        needed = set(read_operations(flat))
        kept = {id(module) for layer in own_layers for module in layer.modules()}

        def stand_in(x: mx.array) -> mx.array:  # whose result no one needs here
            return mx.zeros((*x.shape, width), dtype) if mx.issubdtype(x.dtype, mx.integer) else x

        for _, module in tree_flatten(self._model.leaf_modules(), is_leaf=nn.Module.is_module):
            arrays = [each for _, each in tree_flatten(module.parameters())]
            if arrays and id(module) not in kept and not needed & set(read_operations(arrays)):
                _replace(module, stand_in)
        self.hidden = None


def _intercept(target: Any, call: Callable[..., Any]) -> None:
    """Pass calls of a module to `call`, which is given the module's own call before the arguments."""
    kind = type(target)

    def intercepted(self: Any, *given: Any, **named: Any) -> Any:
        return call(lambda *more, **also: kind.__call__(self, *more, **also), *given, **named)

    target.__class__ = type(kind.__name__, (kind,), {"__call__": intercepted, "__module__": kind.__module__})


def _replace(module: Any, call: Callable[[mx.array], mx.array]) -> None:
    """Let a module compute `call` of its first argument without weights; its plain attributes stay."""
    _intercept(module, lambda _, x, *rest, **named: call(x))
    type(module).as_linear = type(module).__call__  # of embeddings that are the head, too
    module.clear()


def _list_of_layers(model: Any) -> list[Any]:
    """Return the list itself that the model computes with; its property `layers` may return a copy."""
    first, count = model.layers[0], len(model.layers)
    for module in model.modules():
        for value in module.values():
            if isinstance(value, list) and len(value) == count and value and value[0] is first:
                return value
    raise IndivisibleError("its layers are not in one list")


def _stand_ins(whole: Sequence[Any], own: Sequence[int]) -> list[int | None]:
    """Return for each cache of the model the index of the own cache that stands in for it."""
    kinds = [(type(each), getattr(each, "max_size", None)) for each in whole]
    own_kinds = [kinds[place] for place in own]
    return [
        own.index(place) if place in own else own_kinds.index(kind) if kind in own_kinds else None
        for place, kind in enumerate(kinds)
    ]
