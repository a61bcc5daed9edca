"""A vision tower computed in pieces, so that steps of running answers fit between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import structlog

from greenroom.engine.vision.split_layers import SplitLayers, Stand

_TOWERS = ("vision_tower", "vision_model", "visual", "vision_encoder")
"""What mlx-vlm's models call the part that is expensive."""

log = structlog.get_logger(__name__)


class _TowerCalledError(Exception):
    """A model has called its tower, with these arguments."""

    def __init__(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__("the tower was called")
        self.positional, self.named = positional, named


class TowerPieces:
    """Computes what a model makes of an image: `advance` until `is_done`, then `result`.

    MLX computes nothing before it is asked to. So the tower is called once, which builds its whole graph,
    and the parts of its layers are asked for one after the other; likewise what projects its output into
    the language model. A tower that is none of those known by name, or that does not bear its layers to be
    split, is computed in one piece: as `result`.

    Args:
        model: One of mlx-vlm's. Its tower is replaced while a method of this class runs, and only then.
        embed: Calls the model's `get_input_embeddings`, perhaps more than once.
    """

    def __init__(self, model: Any, embed: Callable[[], Any]) -> None:
        self._model = model
        self._embed = embed
        self._name = next((name for name in _TOWERS if callable(model.get(name))), "")
        self._result: Any = None
        self._pieces: Iterator[list[mx.array]] | None = None
        self.is_done = not self._name

    def advance(self) -> None:
        """Compute the next piece."""
        if self._pieces is None:
            self._pieces = self._build()
        try:
            for piece in self._pieces:
                mx.eval(piece)
                return
        except Exception as error:  # whatever comes of a graph that is not evaluated as its makers did
            self._result = None
            log.info("image computed in one piece", reason=f"{type(error).__name__}: {error}")
        self.is_done = True

    def result(self) -> Any:
        """Return what `embed` returns, not evaluated where only the tower is."""
        return self._embed() if self._result is None else self._result

    def _build(self) -> Iterator[list[mx.array]]:
        """Build the graph of the tower and of what follows; yield what is to be evaluated, in order."""
        tower, split = self._model[self._name], SplitLayers()
        try:
            with self._tower_replaced(_raise_call):
                self._embed()
        except _TowerCalledError as error:
            call = error
        else:
            return
        with split.replacing(tower):
            output = tower(*call.positional, **call.named)
        yield from split.pop_pieces()
        rest = split.replacing(self._model, skip=(self._name, "language_model"))
        with rest, self._tower_replaced(lambda *_, **__: output):
            self._result = self._embed()
        yield from split.pop_pieces()

    @contextmanager
    def _tower_replaced(self, call: Callable[..., Any]) -> Iterator[None]:
        tower = self._model[self._name]
        self._model[self._name] = Stand(tower, call)
        try:
            yield
        finally:
            self._model[self._name] = tower


def _raise_call(*positional: Any, **named: Any) -> Any:
    raise _TowerCalledError(positional, named)
