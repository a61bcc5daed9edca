"""The adapters in memory beside one base model, on the model's thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from greenroom.engine.loading.batching_patches import ConvolvedKeys, GroupedHeadsMask, RaggedRows
from greenroom.engine.loading.weight_files import StoredTensor
from greenroom.engine.lora.files import OpenedAdapter, PairHeader, plain_path, why_unusable
from greenroom.engine.lora.layers import (
    AdaptedEmbedding,
    AdaptedExperts,
    AdaptedLayer,
    AdaptedLinear,
    ExpertRows,
    LoadedAdapter,
    LowRank,
    OrderedRows,
    PieceOfRows,
    RowAdapter,
    forget_plans,
)
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import AppliedAdapter
from greenroom.schemas.problems import Problem, ProblemError, load_failed

MAX_ADAPTERS = 16
"""Most adapters in memory beside one base, as in mistral.rs."""

log = get_logger(__name__)


class LoadedAdapters:
    """Loads adapters into a model; the least recently used one leaves for another.

    Rows keep the adapter that they began with, also after a newer one has taken its name.

    Args:
        model: Loaded model, whose layers get a wrapper once an adapter changes them.
        max_bytes: Most bytes of all adapters.
        charge: Charges additional bytes to the model's memory, or gives bytes back; returns whether they fit.
    """

    def __init__(self, model: Any, max_bytes: int, charge: Callable[[int], bool]) -> None:
        outer = model if isinstance(model, nn.Module) else getattr(model, "model", None)
        self._model = getattr(outer, "language_model", outer)
        self._sees = outer is not model
        self._max_bytes, self._charge = max_bytes, charge
        self._loaded: dict[str, LoadedAdapter] = {}
        self._replaced: list[LoadedAdapter] = []
        self._targets: dict[str, tuple[str, Any, Any]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all adapters."""
        return sum(each.nbytes for each in self._all())

    def names(self) -> tuple[tuple[str, int], ...]:
        """Return the names of the adapters with their bytes, the least recently used first."""
        return tuple((each.name, each.nbytes) for each in self._loaded.values())

    def apply(self, opened: OpenedAdapter, asked: AppliedAdapter) -> tuple[RowAdapter, str]:
        """Return the adapter for a request's rows, loaded if necessary, and the key of its prefixes.

        Raises:
            ProblemError: 503: it does not fit the model, or there is no room for it.
        """
        adapter = self._loaded.pop(opened.digest, None) or self._load(opened, asked)
        self._loaded[opened.digest] = adapter
        adapter.opened[asked.folder], opened.content = opened, None
        return RowAdapter(adapter, asked.scale), f"{opened.digest}*{asked.scale!r}"

    def unload(self, folder: str) -> None:
        """Remove the adapters of a folder; rows that apply one finish on it."""
        self._remove([each for each in self._loaded.values() if folder in each.opened])

    def sweep(self) -> None:
        """Free the replaced adapters that no row applies any longer."""
        left = [each for each in self._replaced if len(each.rows)]
        if len(left) < len(self._replaced):
            freed = sum(each.nbytes for each in self._replaced) - sum(each.nbytes for each in left)
            self._replaced = left
            self._restack()
            self._charge(-freed)

    def close(self) -> None:
        """Release the model and all adapters."""
        self._model, self._targets = None, {}
        self._loaded.clear()
        self._replaced.clear()
        forget_plans()

    def _remove(self, adapters: list[LoadedAdapter]) -> None:
        self._loaded = {digest: each for digest, each in self._loaded.items() if each not in adapters}
        self._replaced += adapters
        self.sweep()

    def _all(self) -> list[LoadedAdapter]:
        return [*self._loaded.values(), *self._replaced]

    def _load(self, opened: OpenedAdapter, asked: AppliedAdapter) -> LoadedAdapter:
        header = opened.header
        try:
            paths = self._paths(header.pairs)
            self.unload(asked.folder)
            self._make_room(header.nbytes, asked.name)
            try:
                content = opened.take()
                layers = {paths[module]: _factors(pair, content) for module, pair in header.pairs.items()}
                _check_numbers(layers)
            except BaseException:
                self._charge(-header.nbytes)
                raise
        except (OSError, ValueError) as error:
            raise ProblemError(load_failed(asked.name, f"{why_unusable(error)}.")) from None
        for module in header.pairs:
            self._wrap(*self._targets[plain_path(module)])
        _order_rows(self._model)
        adapter = self._loaded[opened.digest] = LoadedAdapter(asked.name, layers, header.nbytes)
        self._restack()
        rank = max(pair.rank for pair in header.pairs.values())
        log.info("adapter loaded", adapter=asked.name, bytes=adapter.nbytes, rank=rank)
        return adapter

    def _make_room(self, nbytes: int, name: str) -> None:
        """Charge the bytes of a new adapter, for which those leave that no row applies."""
        if nbytes > self._max_bytes:
            limit = f"it has {nbytes >> 20:,} MB, and `adapter_bytes` allows {self._max_bytes >> 20:,} MB"
            raise ValueError(limit)
        while True:
            full = len(self._all()) >= MAX_ADAPTERS or self.nbytes + nbytes > self._max_bytes
            if not full and self._charge(nbytes):
                return
            idle = next((each for each in self._loaded.values() if not len(each.rows)), None)
            if idle is None:
                detail = f"There is no room for the adapter '{name}' beside those that requests use now."
                raise ProblemError(Problem(503, "adapters_in_use", detail, "model", retry_after=5))
            log.info("adapter evicted", adapter=idle.name, cause=name)
            self._remove([idle])

    def _paths(self, pairs: Mapping[str, PairHeader]) -> dict[str, str]:
        """Return the path of each adapted layer by its name in the adapter.

        Raises:
            ValueError: One sentence: the model has no such layer, or one of another kind or shape.
        """
        self._targets = self._targets or _targets_of(self._model)
        found = {}
        for module, pair in pairs.items():
            target = self._targets.get(plain_path(module))
            if target is None:
                raise ValueError(f"its base has no layer {module!r} that can be adapted")
            path, _, layer = target
            if self._sees and _wrapper_of(layer) is AdaptedEmbedding:
                raise ValueError(f"it adapts {module!r}, which its base shares with images")
            inputs, outputs, experts = _shape_of(layer)
            if (pair.inputs, pair.outputs, pair.experts) != (inputs, outputs, experts):
                of_experts = f" and {experts} experts" if experts is not None else ""
                raise ValueError(
                    f"{module!r} is trained for {pair.inputs:,} inputs and {pair.outputs:,} outputs, but its "
                    f"base has a layer of {inputs:,} and {outputs:,}{of_experts}"
                )
            found[module] = path
        return found

    def _wrap(self, path: str, parent: Any, layer: Any) -> None:
        above, _, leaf = path.rpartition(".")
        if isinstance(getattr(parent, leaf), AdaptedLayer):
            return
        setattr(parent, leaf, _wrapper_of(layer)(layer, path))
        if _wrapper_of(layer) is AdaptedExperts:
            place, _, leaf = above.rpartition(".")
            holder = _at(self._model, place)
            if not isinstance(getattr(holder, leaf), AdaptedLayer):
                setattr(holder, leaf, ExpertRows(parent, above))

    def _restack(self) -> None:
        """Put equal factors of all adapters of a layer into one array, so that a step gathers from it."""
        forget_plans()
        alike: dict[Any, list[LowRank]] = {}
        for adapter in self._all():
            for path, low in adapter.layers.items():
                alike.setdefault((path, low.a.shape, low.a.dtype, low.b.dtype), []).append(low)
        for members in alike.values():
            _stack(members)


def _stack(members: list[LowRank]) -> None:
    """Stack factors; each keeps a view, so that there is one copy of each."""
    first = members[0]
    stacked = None if first.stack is None else first.stack[0].shape[0]
    if stacked == len(members) and all(
        each.stack is first.stack and each.index == index for index, each in enumerate(members)
    ):
        return
    gathers = first.a.ndim == 2 and (mx.default_device().type != mx.cpu or first.a.dtype == mx.float32)
    if len(members) == 1 or not gathers:
        for each in members:
            if each.stack is not None:
                each.a, each.b = mx.contiguous(each.a + 0), mx.contiguous(each.b + 0)
                each.stack, each.index = None, 0
        mx.eval([[each.a, each.b] for each in members])
        return
    stack = mx.stack([each.a for each in members]), mx.stack([each.b for each in members])
    for index, each in enumerate(members):
        each.a, each.b, each.stack, each.index = stack[0][index], stack[1][index], stack, index
    mx.eval(*stack, [[each.a, each.b] for each in members])


def _check_numbers(layers: dict[str, LowRank]) -> None:
    """Evaluate factors; one that is not finite would reach the rows of others.

    Raises:
        ValueError: One sentence that names the layer.
    """
    finite = [mx.isfinite(each.a).all() & mx.isfinite(each.b).all() for each in layers.values()]
    mx.eval(finite, [[each.a, each.b] for each in layers.values()])
    for path, is_finite in zip(layers, finite, strict=True):
        if not is_finite.item():
            raise ValueError(f"{path!r} has factors with numbers that are not finite")


def _factors(pair: PairHeader, content: bytes) -> LowRank:
    """Return the factors of a module from the content of their file."""
    a, b = _array(pair.a, pair, content), _array(pair.b, pair, content)
    if b.dtype == mx.float32:  # one operation less for each layer of a step, and no digit lost
        return LowRank(a, b * pair.scale, 1.0, pair.ties)
    return LowRank(a, b, pair.scale, pair.ties)


def _array(tensors: Sequence[StoredTensor], pair: PairHeader, content: bytes) -> mx.array:
    arrays = [_to_mlx(each, content) for each in tensors]
    array = arrays[0] if pair.experts is None or len(tensors) == 1 != pair.experts else mx.stack(arrays)
    return mx.contiguous(array.swapaxes(-1, -2)) if pair.transposed else array


def _to_mlx(tensor: StoredTensor, content: bytes) -> mx.array:
    kind = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[tensor.dtype]
    start = 8 + int.from_bytes(content[:8], "little") + tensor.data_offsets[0]
    array = mx.array(np.frombuffer(content, kind, math.prod(tensor.shape), start).reshape(tensor.shape))
    return array.view(mx.bfloat16) if tensor.dtype == "BF16" else array


def _targets_of(model: Any) -> dict[str, tuple[str, Any, Any]]:
    """Return the layers that can be adapted by plain path: their path, their parent, and themselves.

    A mend that keeps the order of rows adds a component to the paths below it, which adapters do not know.
    """
    found: dict[str, tuple[str, Any, Any]] = {}
    modules = dict(model.named_modules())
    kinds = ConvolvedKeys, GroupedHeadsMask, RaggedRows
    mended = [f"{path}." for path, each in modules.items() if isinstance(each, kinds)]
    for path, layer in modules.items():
        if path and _wrapper_of(layer) is not None:
            parent = modules.get(path.rpartition(".")[0])
            if isinstance(parent, nn.Module):  # a list of layers is none
                above = next((each for each in mended if path.startswith(each)), "")
                known = above + path.removeprefix(above).partition(".")[2] if above else path
                found[plain_path(known)] = path, parent, layer
    return found


def _order_rows(model: Any) -> None:
    """Let the layers within blocks that compute rows in pieces find the adapters of these rows."""
    for path, block in list(model.named_modules()):
        if isinstance(block, RaggedRows) and not isinstance(block.block, PieceOfRows):
            block.block = PieceOfRows(block.block, f"{path}.block")
            above, _, leaf = path.rpartition(".")
            holder, ordered = _at(model, above), OrderedRows(block, path)
            if isinstance(holder, list):
                holder[int(leaf)] = ordered
            else:
                setattr(holder, leaf, ordered)


def _wrapper_of(layer: Any) -> Any:
    if isinstance(layer, nn.Linear | nn.QuantizedLinear):
        return AdaptedLinear
    if isinstance(layer, nn.Embedding | nn.QuantizedEmbedding):
        return AdaptedEmbedding
    # mlx-vlm may have copies of mlx-lm's classes.
    return AdaptedExperts if type(layer).__name__ in ("SwitchLinear", "QuantizedSwitchLinear") else None


def _shape_of(layer: Any) -> tuple[int, int, int | None]:
    """Return the inputs, outputs and experts of a layer, with those of an embedding as of its factors."""
    if _wrapper_of(layer) is AdaptedExperts:
        return layer.input_dims, layer.output_dims, layer.num_experts
    first, second = layer.weight.shape
    if isinstance(layer, nn.QuantizedLinear | nn.QuantizedEmbedding):
        second = second * 32 // layer.bits
    return (first, second, None) if _wrapper_of(layer) is AdaptedEmbedding else (second, first, None)


def _at(model: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        model = model[int(part)] if isinstance(model, list) else getattr(model, part)
    return model
