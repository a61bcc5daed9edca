"""The model libraries, imported under one process-wide lock: two threads importing them at once fail."""

from __future__ import annotations

import contextlib
import gc
import importlib
import resource
import threading
from collections.abc import Iterator
from types import ModuleType

_MAX_OPEN_FILES = 4096
"""Files that may be open at once, if the machine allows it: sharded weights beside many connections."""
_lock = threading.Lock()
_imported: set[str] = set()


def import_text_libraries() -> None:
    """Import what a text model needs; a second thread waits for the first."""
    _import_once("mlx_lm")


def import_encoder_libraries() -> None:
    """Import what a model needs that embeds or ranks texts."""
    _import_once("mlx_lm")
    _import_once("mlx_vlm.embedding_loader")


def import_vision_libraries() -> None:
    """Import what a model needs that sees."""
    _import_once("mlx_lm")
    _import_once("mlx_vlm.utils")


def _import_once(library: str) -> None:
    with _lock:
        if library in _imported:
            return
        with _keep_file_limit():
            importlib.import_module(library)

        # The libraries leave some hundred thousand objects that never die. Out of the collector's sight,
        # they no longer make a collection at unload hold up every other thread.
        gc.collect()
        gc.freeze()
        _imported.add(library)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Hold the lock, for code that imports a library's modules itself."""
    with _lock:
        yield


@contextlib.contextmanager
def _keep_file_limit() -> Iterator[None]:
    """Keep the limit of open files that mlx-lm would set to 4,096 at its import, or fail to."""
    set_limit = resource.setrlimit
    setattr(resource, "setrlimit", lambda *_: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(resource, "setrlimit", set_limit)  # noqa: B010
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):  # a kernel with a lower bound of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def import_grammar_library() -> None:
    """Import what constrains answers."""
    with _lock:
        import llguidance  # noqa: F401


def import_model_code(module: str) -> ModuleType:
    """Import the code of one architecture, or what finds it.

    Raises:
        ImportError: It is not there, or needs something that is not.
    """
    with _lock, _keep_file_limit():
        return importlib.import_module(module)
