"""A vision tower computed in pieces, so that steps of running answers fit between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import structlog
from mlx import nn

_TOWERS = ("vision_tower", "vision_model", "visual", "vision_encoder")
"""What mlx-vlm's models call the part that is expensive."""

_CHEAP = (nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Identity)
"""Layers that are not worth a piece of their own."""

log = structlog.get_logger(__name__)


class _TowerCalledError(Exception):
    """A model has called its tower, with these arguments."""

    def __init__(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__("the tower was called")
        self.positional, self.named = positional, named


class TowerPieces:
    """Computes what a model makes of an image: `advance` until `is_done`, then `result`.

    MLX computes nothing before it is asked to. So the tower is called once, which builds its whole graph;
    what each layer of it returns is noted, and asked for in that order. A tower that is none of those known
    by name, or that does not bear to be watched, is computed in one piece: as `result`.

    Args:
        model: One of mlx-vlm's. Its tower is replaced while a method of this class runs, and only then.
        embed: Calls the model's `get_input_embeddings`, perhaps more than once.
    """

    def __init__(self, model: Any, embed: Callable[[], Any]) -> None:
        self._model = model
        self._embed = embed
        self._name = next((name for name in _TOWERS if callable(model.get(name))), "")
        self._output: Any = None
        self._pieces: Iterator[mx.array] | None = None
        self.is_done = not self._name

    def advance(self) -> None:
        """Compute the next piece."""
        if self._pieces is None:
            self._pieces = iter(self._begin())
        piece = next(self._pieces, None)
        if piece is None:
            self.is_done = True
        else:
            mx.eval(piece)

    def result(self) -> Any:
        """Return what `embed` returns, not evaluated where only the tower is."""
        if self._output is None:
            return self._embed()
        with self._tower_replaced(lambda *_, **__: self._output):
            return self._embed()

    def _begin(self) -> Iterator[mx.array]:
        """Build the graph of the tower; return what is to be evaluated, one after the other."""
        tower, noted = self._model[self._name], list[mx.array]()
        try:
            with self._tower_replaced(_raise_call):
                self._embed()
        except _TowerCalledError as call:
            try:
                with _watched(tower, noted):
                    self._output = tower(*call.positional, **call.named)
            except Exception as error:  # whatever a class makes of layers that are watched
                log.info("image computed in one piece", reason=f"{type(error).__name__}: {error}")
                noted.clear()
        noted.reverse()
        while noted:
            yield noted.pop()  # kept by what follows from it alone

    @contextmanager
    def _tower_replaced(self, call: Callable[..., Any]) -> Iterator[None]:
        tower = self._model[self._name]
        self._model[self._name] = _Stand(tower, call)
        try:
            yield
        finally:
            self._model[self._name] = tower


class _Stand:
    """Has all that a module has, but is called otherwise."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        self._module = module
        self._call = call

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._call(*positional, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _raise_call(*positional: Any, **named: Any) -> Any:
    raise _TowerCalledError(positional, named)


@contextmanager
def _watched(tower: Any, noted: list[mx.array]) -> Iterator[None]:
    """Note what the layers of a tower return, and their parts, in the order in which they do."""
    replaced: list[tuple[Any, Any, Any]] = []

    def watch(holder: Any, key: Any) -> None:
        module = holder[key]
        replaced.append((holder, key, module))
        holder[key] = _Stand(module, lambda *args, **named: _note(module(*args, **named), noted))

    def walk(module: Any) -> None:
        for key, child in list(module.items()):
            if isinstance(child, nn.Module):
                walk(child)
                watch(module, key)
            elif isinstance(child, list) and child and all(isinstance(each, nn.Module) for each in child):
                for index, layer in enumerate(child):
                    for part, value in list(layer.items()):
                        if isinstance(value, nn.Module) and not isinstance(value, _CHEAP):
                            watch(layer, part)
                    watch(child, index)

    try:
        walk(tower)
        yield
    finally:
        for holder, key, module in reversed(replaced):
            holder[key] = module


def _note(output: Any, noted: list[mx.array]) -> Any:
    parts = output if isinstance(output, tuple | list) else (output,)
    noted += [part for part in parts if isinstance(part, mx.array)]
    return output
