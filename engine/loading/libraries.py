"""Imports of the model libraries under a process-wide lock, since concurrent imports of them fail."""

from __future__ import annotations

import contextlib
import gc
import importlib
import resource
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

_MAX_OPEN_FILES = 4096
"""Wanted limit of open files, if the system allows it: sharded weights beside many connections."""
_lock = threading.Lock()
_imported: set[str] = set()
_watcher: Callable[[bool], None] | None = None


def watch_imports(watcher: Callable[[bool], None] | None) -> None:
    """Call `watcher` with True before each import and with False after it; None ends that.

    Imports load native code, which may hold the interpreter's lock for seconds.
    """
    global _watcher
    _watcher = watcher


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Hold the lock while other code imports a library's modules."""
    with _lock:
        watcher = _watcher
        if watcher is not None:
            watcher(True)
        try:
            yield
        finally:
            if watcher is not None:
                watcher(False)


def import_array_library() -> None:
    """Import MLX itself, which opens the device's drivers."""
    _import_once("mlx.core")


def import_text_libraries() -> None:
    """Import the libraries of text models; a second thread waits for the first."""
    _import_once("mlx_lm")


def import_encoder_libraries() -> None:
    _import_once("mlx_lm")
    _import_once("mlx_vlm.embedding_loader")


def import_vision_libraries() -> None:
    _import_once("mlx_lm")
    _import_once("mlx_vlm.utils")


def _import_once(library: str) -> None:
    if library in _imported:
        return
    with importing():
        if library in _imported:
            return
        with _keep_file_limit():
            importlib.import_module(library)

        # The libraries create some hundred thousand permanent objects. Freezing hides them from the garbage
        # collector, whose runs at unload would otherwise block every other thread for longer.
        gc.collect()
        gc.freeze()
        _imported.add(library)


@contextlib.contextmanager
def _keep_file_limit() -> Iterator[None]:
    """Prevent mlx-lm from setting the limit of open files to 4,096 at its import, and raise it if needed."""
    set_limit = resource.setrlimit
    setattr(resource, "setrlimit", lambda *_: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(resource, "setrlimit", set_limit)  # noqa: B010
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):  # the kernel may have a lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def import_grammar_library() -> None:
    with importing():
        import llguidance  # noqa: F401


def import_model_code(module: str) -> ModuleType:
    """Import the code of one architecture, or the module that finds it.

    Raises:
        ImportError: The module or one of its dependencies is missing.
    """
    with importing(), _keep_file_limit():
        return importlib.import_module(module)
