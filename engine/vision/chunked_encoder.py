"""A vision tower computed in pieces, so that steps of running sequences fit in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.vision.row_chunked_layers import ModuleProxy, RowChunkedLayers
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
        """Compute the next piece."""
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
