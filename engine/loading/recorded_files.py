"""Recording of lazily loaded files, so that they are read before a GPU needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.loading.devices import computes_on_gpu
from greenroom.engine.loading.file_arrays import FileArrays
from greenroom.engine.loading.load_errors import LoadAbandonedError


class _Thread(threading.local):
    files: FileArrays | None = None
    is_abandoned: Callable[[], bool] = staticmethod(lambda: False)


_thread = _Thread()
_lock = threading.Lock()
_loads = 0
_load, _eval = mx.load, mx.eval


@contextmanager
def recorded_files(is_abandoned: Callable[[], bool] = lambda: False) -> Iterator[FileArrays | None]:
    """Record this thread's `mx.load` calls if models compute on a GPU; yield None on a CPU.

    GPU commands wait for arrays that are not read yet, and the system kills commands that take several
    seconds. Some models evaluate parts during construction, so files are read before evaluations within, too.

    Args:
        is_abandoned: Predicate called while files are read within.

    Raises:
        LoadAbandonedError: `is_abandoned` returned True during an evaluation within.
        ValueError: A file could not be read during an evaluation within.
    """
    global _load, _eval, _loads
    if not computes_on_gpu():
        yield None
        return
    with _lock:
        if _loads == 0:
            _load, _eval = mx.load, mx.eval
            _set_functions(_recording_load, _reading_eval)
        _loads += 1
    files, outer = FileArrays(), (_thread.files, _thread.is_abandoned)
    _thread.files, _thread.is_abandoned = files, is_abandoned
    try:
        yield files
    finally:
        _thread.files, _thread.is_abandoned = outer
        with _lock:
            _loads -= 1
            if _loads == 0:
                _set_functions(_load, _eval)


def _set_functions(load: Callable[..., Any], evaluate: Callable[..., Any]) -> None:
    setattr(mx, "load", load)  # noqa: B010
    setattr(mx, "eval", evaluate)  # noqa: B010


def _recording_load(file: Any, *positional: Any, **named: Any) -> Any:
    loaded = _load(file, *positional, **named)
    if _thread.files is not None and isinstance(file, str | Path):
        _thread.files.record(Path(file), loaded)
    return loaded


def _reading_eval(*trees: Any) -> None:
    if _thread.files is not None:
        from mlx.utils import tree_flatten

        leaves = [leaf for _, leaf in tree_flatten(trees)]
        _thread.files.read([leaf for leaf in leaves if isinstance(leaf, mx.array)], _go_on)
    _eval(*trees)


def _go_on(_: float) -> None:
    if _thread.is_abandoned():
        raise LoadAbandonedError
