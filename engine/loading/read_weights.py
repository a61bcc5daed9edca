"""Reading of weights from files into memory, layer by layer, for models of every type."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from greenroom.engine.loading.devices import weight_type
from greenroom.engine.loading.file_arrays import FileArrays
from greenroom.engine.loading.load_errors import LoadAbandonedError
from greenroom.engine.memory.residence import watch_weights
from greenroom.schemas.settings.settings import Settings

_LAYER = re.compile(r"^(.*?\.?layers\.\d+)\.")
_CHUNK_BYTES = 256 * 1024 * 1024
"""Bytes read between two progress reports, after each of which the load can be abandoned."""


def load_arrays(file: Path) -> dict[str, mx.array]:
    """Return the lazy arrays of a safetensors file by name."""
    return cast("dict[str, mx.array]", mx.load(str(file)))


def is_packed(model: Any) -> bool:
    """Return whether some of a model's weights are quantized."""
    from mlx.utils import tree_flatten

    return any(value.dtype == mx.uint32 for _, value in tree_flatten(model.parameters()))


def cast_weights(model: Any, settings: Settings, *, slow: bool = False) -> mx.Dtype | None:
    """Cast floating-point weights as the settings say, except those that the architecture excludes.

    Args:
        slow: See `weight_type`; quantized weights are slow without it.

    Returns:
        Type that they were cast to; None if they keep theirs.
    """
    from mlx.utils import tree_map_with_path

    if (name := weight_type(settings, slow or is_packed(model))) == "auto":
        return None
    dtype: mx.Dtype = getattr(mx, name)
    may_cast = getattr(model, "cast_predicate", lambda path: True)

    def cast_one(path: str, value: mx.array) -> mx.array:
        floating = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(dtype) if floating and may_cast(path) else value

    model.update(tree_map_with_path(cast_one, model.parameters()))
    return dtype


def weight_bytes(model: Any) -> int:
    """Return the bytes of a model's weights, read or not."""
    from mlx.utils import tree_flatten

    return sum(value.nbytes for _, value in tree_flatten(model.parameters()))


def read_weights(
    model: Any,
    files: FileArrays | None,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
) -> None:
    """Read the weights of a lazily loaded model, layer by layer.

    Args:
        files: Lazy arrays recorded during the load (`recorded_files`): each chunk's bytes are read before the
            chunk is evaluated. None on a CPU, where evaluation may wait for the disk.
        progress: Callback with the fraction in memory, 0 to 1.
        is_abandoned: Predicate, called between chunks and pieces of files, that returns True to stop.

    Raises:
        LoadAbandonedError: `is_abandoned` returned True.
        ValueError: A file can no longer be read.
    """
    from mlx.utils import tree_flatten

    weights = tree_flatten(model.parameters())
    total = sum(value.nbytes for _, value in weights) or 1
    done = size = 0

    def go_on(fraction: float) -> None:
        if is_abandoned():
            raise LoadAbandonedError
        progress((done + fraction * size) / total)

    for chunk in _chunks(weights):
        if is_abandoned():
            raise LoadAbandonedError
        size = sum(value.nbytes for value in chunk)
        if files is not None:
            files.read(chunk, go_on)
        mx.eval(chunk)
        done += size
        progress(done / total)
    watch_weights(weights)


def _chunks(weights: list[tuple[str, mx.array]]) -> Iterator[list[mx.array]]:
    """Yield weights of one layer at a time, in chunks of limited size."""
    for _, layer in itertools.groupby(weights, lambda weight: _layer_of(weight[0])):
        chunk, size = list[mx.array](), 0
        for _, value in layer:
            if chunk and size + value.nbytes > _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(value)
            size += value.nbytes
        yield chunk


def _layer_of(name: str) -> str:
    match = _LAYER.match(name)
    return match.group(1) if match else ""
