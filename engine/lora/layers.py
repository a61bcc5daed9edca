"""Layers with low-rank adapters, of which each row of a forward pass applies its own, or none.

A step tells its rows' adapters before it builds the graph (`adapted_rows`); the layers look them up on the
same thread. Rows without an adapter keep the base's output unchanged, and a step without any calls the base's
layer directly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import attrs
import mlx.core as mx
from mlx import nn


@attrs.define(eq=False)
class LowRank:
    """The low-rank factors of one layer.

    Args:
        a: `[inputs, rank]`, with the experts in front if there are any.
        b: `[rank, outputs]`, likewise.
        ties: See `PairHeader`.
        stack: Factors `[adapters, …]` of all adapters of this layer with the same rank and type; None for
            none.
        index: Index in the stack.
    """

    a: mx.array
    b: mx.array
    scale: float
    ties: bool = True
    stack: tuple[mx.array, mx.array] | None = None
    index: int = 0


@attrs.define(eq=False)
class LoadedAdapter:
    """An adapter in memory.

    Args:
        layers: Factors by path of the layer.
        opened: Opened files of this content by their folder, which are not read again meanwhile.
        rows: Sequences that apply it, as long as the engine knows them.
    """

    name: str
    layers: dict[str, LowRank]
    nbytes: int = 0
    opened: dict[str, object] = attrs.field(factory=dict)
    rows: WeakSet[Any] = attrs.field(factory=WeakSet)


@attrs.frozen
class RowAdapter:
    """The adapter of a row.

    Args:
        factor: Factor of the request, in addition to the adapter's own scale.
    """

    adapter: LoadedAdapter = attrs.field(eq=id)
    factor: float = 1.0


Rows = tuple[RowAdapter | None, ...]

_MOST_PLANS = 32


@attrs.frozen(eq=False)
class Group:
    """Rows of a step that are computed with one product.

    Args:
        low: Factors, of the first row's adapter if several adapters are gathered.
        rows: Indices of the rows, sorted by adapter, some twice so that each has as many; None for all.
        scale: Scale of the product; `[rows, 1, 1]` if it differs.
        indices: Index of each adapter in the stack; None if all rows apply the same adapter.
        places: Place in `rows` of each row of the step, one beyond the last if it is not among them; None
            for all rows in their order.
    """

    low: LowRank
    rows: mx.array | None
    scale: float | mx.array
    indices: mx.array | None = None
    places: mx.array | None = None


class RowPlan:
    """The adapters of a step's rows, grouped for each layer once for all steps with the same rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.uniform = rows[0] if len(set(rows)) == 1 else None
        self._groups: dict[str, list[Group]] = {}
        self._parts: dict[tuple[int, ...], RowPlan] = {}
        self._arrays: dict[tuple[tuple[int, int, float], ...], tuple[Any, ...]] = {}

    def groups(self, path: str, *, may_gather: bool = True) -> list[Group]:
        """Return the groups of rows whose adapters change a layer."""
        if (known := self._groups.get(path)) is None:
            known = self._groups[path] = self._group(path, may_gather)
        return known

    def of_rows(self, indices: tuple[int, ...]) -> RowPlan:
        """Return the plan of some of the rows, in this order."""
        if (known := self._parts.get(indices)) is None:
            if len(self._parts) >= _MOST_PLANS:
                self._parts.clear()
            known = self._parts[indices] = RowPlan(tuple(self.rows[index] for index in indices))
        return known

    def _group(self, path: str, may_gather: bool) -> list[Group]:
        if self.uniform is not None:
            low = self.uniform.adapter.layers.get(path)
            return [] if low is None else [Group(low, None, low.scale * self.uniform.factor)]
        members: dict[Any, list[tuple[int, LowRank, float]]] = {}
        for index, row in enumerate(self.rows):
            if row is not None and (low := row.adapter.layers.get(path)) is not None:
                key = id(low.stack) if may_gather and low.stack is not None else row
                members.setdefault(key, []).append((index, low, low.scale * row.factor))
        return [self._one_group(each) for each in members.values()]

    def _one_group(self, members: list[tuple[int, LowRank, float]]) -> Group:
        key = tuple((row, low.index, scale) for row, low, scale in members)
        if (arrays := self._arrays.get(key)) is None:  # most layers of a model have the same
            arrays = self._arrays[key] = _arrays_of(key, len(self.rows))
        return Group(members[0][1], *arrays)


def _arrays_of(members: tuple[tuple[int, int, float], ...], count: int) -> tuple[Any, ...]:
    """Return the arrays of a group, given rows with their indices in the stack and scales."""
    blocks: dict[int, list[tuple[int, float]]] = {}
    for row, index, scale in members:
        blocks.setdefault(index, []).append((row, scale))
    most = max(map(len, blocks.values()))
    whole = [(index, block + block[:1] * (most - len(block))) for index, block in blocks.items()]
    if most * len(blocks) > 2 * len(members):  # one adapter has most of the rows
        whole = [(index, [(row, scale)]) for row, index, scale in members]
    rows, scales = zip(*(each for _, block in whole for each in block), strict=True)
    same, ordered = len(set(scales)) == 1, rows == (*range(count),)
    places = [rows.index(row) if row in rows else len(rows) for row in range(count)]
    return (
        None if ordered else mx.array(rows, dtype=mx.uint32),
        scales[0] if same else mx.array(scales, dtype=mx.float32)[:, None, None],
        mx.array([index for index, _ in whole], dtype=mx.uint32) if len(blocks) > 1 else None,
        None if ordered else mx.array(places, dtype=mx.uint32),
    )


class _Step(threading.local):
    """The plan of the forward pass whose graph this thread builds; None if no row has an adapter."""

    plan: RowPlan | None = None

    def __init__(self) -> None:
        self.known: dict[Rows, RowPlan] = {}


_step = _Step()


def forget_plans() -> None:
    """Discard this thread's plans: factors have moved to other stacks, or are gone."""
    _step.known.clear()


@contextmanager
def adapted_rows(sequences: Iterable[Any]) -> Iterator[None]:
    """Apply the adapters of sequences, some of them None, to the rows of the forward pass built within."""
    rows: Rows = tuple([None if each is None else each.adapter for each in sequences])
    if not any(rows):
        yield
        return
    known = _step.known
    plan = known.pop(rows) if rows in known else RowPlan(rows)
    _step.plan = known[rows] = plan  # the latest one comes last
    if len(known) > _MOST_PLANS:
        del known[next(iter(known))]
    try:
        yield
    finally:
        _step.plan = None


@contextmanager
def _planned(plan: RowPlan | None) -> Iterator[None]:
    before, _step.plan = _step.plan, plan
    try:
        yield
    finally:
        _step.plan = before


class AdaptedLayer(nn.Module):  # type: ignore[misc]
    """A layer of the base, in place of which it stands.

    Args:
        path: Path of the layer in the model.
    """

    def __init__(self, layer: Any, path: str) -> None:
        super().__init__()
        self.layer = layer
        self._path = path

    def __getattr__(self, name: str) -> Any:
        layer = self.get("layer")
        return super().__getattr__(name) if name in self or layer is None else getattr(layer, name)


class AdaptedLinear(AdaptedLayer):
    """A linear layer, quantized or not."""

    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.layer(x)
        plan = _step.plan
        if plan is None or not (groups := plan.groups(self._path)):
            return y
        if plan.uniform is not None:
            return y + _product(groups[0], x)
        rows = len(plan.rows)
        inputs = x.reshape(rows, -1, x.shape[-1])
        added = [(group.places, _product(group, _of_rows(inputs, group))) for group in groups]
        return _add(y.reshape(rows, -1, y.shape[-1]), added).reshape(y.shape)


class AdaptedEmbedding(AdaptedLayer):
    """An embedding, and the head that shares its weights."""

    def __call__(self, x: mx.array) -> mx.array:
        return self._adapted(self.layer(x), x, lambda low, tokens: low.a[tokens] @ low.b)

    def as_linear(self, x: mx.array) -> mx.array:
        """Return logits: the embedding's product with hidden states."""
        y = self.layer.as_linear(x)
        return self._adapted(y, x, lambda low, hidden: hidden @ low.b.T @ low.a.T, is_head=True)

    def _adapted(
        self,
        y: mx.array,
        x: mx.array,
        product: Callable[[LowRank, mx.array], mx.array],
        is_head: bool = False,
    ) -> mx.array:
        plan = _step.plan
        groups = [] if plan is None else plan.groups(self._path, may_gather=False)
        added = [
            (group.places, (group.scale * product(group.low, _of_rows(x, group))).astype(y.dtype))
            for group in groups
            if group.low.ties or not is_head
        ]
        return _add(y, added)


class AdaptedExperts(AdaptedLayer):
    """The experts of one projection; all rows of its steps apply one adapter, or none (`ExpertRows`)."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        y: mx.array = self.layer(x, indices, sorted_indices=sorted_indices)
        if _step.plan is None or not (groups := _step.plan.groups(self._path)):
            return y
        (group,) = groups
        chosen: Any = {"rhs_indices": indices, "sorted_indices": sorted_indices}
        z = mx.gather_mm(mx.gather_mm(x, group.low.a, **chosen), group.low.b, **chosen)
        return y + (group.scale * z).astype(x.dtype)


class ExpertRows(AdaptedLayer):
    """A layer of experts, which sorts tokens by expert: rows with different adapters are computed apart."""

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        plan = _step.plan
        if plan is None or plan.uniform is not None:
            y: mx.array = self.layer(x, indices)
            return y
        with _planned(None):
            y = self.layer(x, indices)
        each = x.shape[0] // len(plan.rows)
        for adapter in dict.fromkeys(row for row in plan.rows if row is not None):
            if any(path.startswith(f"{self._path}.") for path in adapter.adapter.layers):
                rows = mx.array([index for index, row in enumerate(plan.rows) if row == adapter])
                if each > 1:  # rows and tokens share the first axis
                    rows = (rows[:, None] * each + mx.arange(each, dtype=mx.uint32)).flatten()
                with _planned(RowPlan((adapter,))):
                    y[rows] = self.layer(x[rows], indices[rows])
        return y


class OrderedRows(AdaptedLayer):
    """A block that computes rows in pieces, those of the most tokens first (`RaggedRows`)."""

    def __call__(self, x: mx.array, *args: Any, **keywords: Any) -> Any:
        cache = next((value for value in (*args, *keywords.values()) if hasattr(value, "lengths")), None)
        plan = _step.plan
        if plan is None or cache is None or cache.lengths is None:
            return self.layer(x, *args, **keywords)
        known: Any = getattr(cache, "known_lengths", None)
        is_known = known is not None and known.lengths is cache.lengths
        tokens = known.tokens if is_known else cache.lengths.tolist()
        order = sorted(range(len(tokens)), key=lambda row: -min(max(tokens[row], 0), x.shape[1]))
        with _planned(plan.of_rows(tuple(order))):
            return self.layer(x, *args, **keywords)


class PieceOfRows(AdaptedLayer):
    """The block within, which gets as many of the ordered rows as reach a piece."""

    def __call__(self, x: mx.array, *args: Any, **keywords: Any) -> Any:
        plan = _step.plan
        if plan is None or len(x) == len(plan.rows):
            return self.layer(x, *args, **keywords)
        with _planned(plan.of_rows(tuple(range(len(x))))):
            return self.layer(x, *args, **keywords)


def _of_rows(x: mx.array, group: Group) -> mx.array:
    return x if group.rows is None else x[group.rows]


def _product(group: Group, x: mx.array) -> mx.array:
    """Return the scaled low-rank product, in the type of the input."""
    low, adapters = group.low, group.indices
    if adapters is None or low.stack is None:
        return (_scaled(group, x @ low.a) @ low.b).astype(x.dtype)
    a, b = low.stack
    blocks = len(adapters), -1
    z = x.astype(mx.result_type(x, a)).reshape(*blocks, x.shape[-1])
    z = _scaled(group, mx.gather_mm(z, a, rhs_indices=adapters).reshape(*x.shape[:-1], -1))
    z = mx.gather_mm(z.reshape(*blocks, z.shape[-1]), b, rhs_indices=adapters)
    return z.reshape(*x.shape[:-1], -1).astype(x.dtype)


def _scaled(group: Group, z: mx.array) -> mx.array:
    if isinstance(group.scale, float):
        return z if group.scale == 1.0 else group.scale * z
    return group.scale.astype(z.dtype) * z


def _add(y: mx.array, added: Sequence[tuple[mx.array | None, mx.array]]) -> mx.array:
    """Return the output with products added to some of its rows; the others stay as they are."""
    for places, product in added:
        if places is not None:
            product = mx.concatenate([product, mx.zeros((1, *product.shape[1:]), product.dtype)])[places]
        y = y + product
    return y
