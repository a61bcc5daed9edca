"""Imports of the model libraries under a process-wide lock, since concurrent imports of them fail."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import re
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from greenroom.engine.catalog.load_failures import named_failures

_ADVICE = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
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


MOST_UNPACKED = 1 << 26
"""Numbers of the largest matrix that is unpacked for OpenBLAS: it takes 256 MB meanwhile."""


@lru_cache
def prefer_openblas() -> bool:
    """Let MLX multiply by the system's OpenBLAS on Linux; return whether it does.

    A library that is loaded for all others comes before the BLAS of MLX's packages, unless MLX was imported
    before.
    """
    if sys.platform != "linux" or "mlx.core" in sys.modules:
        return False
    try:
        ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def import_array_library() -> None:
    """Import MLX itself, which opens the device's drivers."""
    _import_once("mlx.core")


def import_text_libraries() -> None:
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
        prefer_openblas()
        with _keep_process():
            importlib.import_module(library)

        # The libraries create some hundred thousand permanent objects. Freezing hides them from the garbage
        # collector, whose runs at unload would otherwise block every other thread for longer.
        gc.collect()
        gc.freeze()
        _imported.add(library)


@contextlib.contextmanager
def _keep_process() -> Iterator[None]:
    """Prevent mlx-lm from setting the limit of open files and a variable of the environment at its import."""
    set_limit, advice = resource.setrlimit, os.environ.get(_ADVICE)
    setattr(resource, "setrlimit", lambda *_: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(resource, "setrlimit", set_limit)  # noqa: B010
        os.environ.pop(_ADVICE, None)
        if advice is not None:
            os.environ[_ADVICE] = advice


def import_grammar_library() -> None:
    with importing():
        import llguidance  # noqa: F401


def import_model_code(module: str) -> ModuleType:
    """Import the code of one architecture, or the module that finds it. Raises ImportError: the module or one
    of its dependencies is missing.
    """
    with importing(), _keep_process():
        return importlib.import_module(module)


# Offline guard: prevents libraries from downloading missing files while they load or compute.
#
# Files in the hub's cache can still be read: some models that speak need a codec of another repository.

_CONNECTING = frozenset({"socket.connect", "socket.getaddrinfo"})
"""Audit events that Python raises before it connects or resolves a name (`sys.addaudithook`)."""

_FETCHERS = re.compile(r"(python|pip|uv|conda|curl|wget|git)[\d.]*(\.exe)?", re.IGNORECASE)
"""Programs through which a library may download; others, such as `ldconfig`, only inspect the system."""

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_REFUSED = (
    "it needs files that its folder does not have, and would fetch them; only the model that was asked for "
    "is ever downloaded"
)


class _Thread(threading.local):
    depth = 0


_thread = _Thread()
_installed = False


class FetchRefusedError(RuntimeError):
    """Error if foreign code tries to download; no OSError, since network libraries retry those."""


@contextmanager
def offline() -> Iterator[None]:
    """Refuse connections and downloading child processes on this thread; other threads are not affected.

    Raises:
        FetchRefusedError: Raised at any such attempt; names the repository that was wanted, if it is known.
    """
    _install()
    depth = _thread.depth
    _thread.depth = depth + 1
    try:
        yield
    except Exception as error:
        if not depth and (repository := _wanted_repository(error)) is not None:
            wanted = f"; run `hf download {repository}` once, and it is found in the hub's cache"
            raise FetchRefusedError(_REFUSED + wanted) from error
        raise
    finally:
        _thread.depth = depth


def _install() -> None:
    global _installed
    with _lock:
        if _installed:
            return
        from huggingface_hub import constants

        is_offline = constants.is_offline_mode
        # Asked before each request; where it is true, the hub's library looks into its cache instead.
        constants.is_offline_mode = lambda: _thread.depth > 0 or is_offline()
        sys.addaudithook(_refuse)
        _installed = True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not _thread.depth:
        return
    if event in _CONNECTING or (event == "subprocess.Popen" and _fetches(arguments[0])):
        raise FetchRefusedError(_REFUSED)


def _fetches(program: object) -> bool:
    name = os.path.basename(os.fsdecode(program)) if isinstance(program, str | bytes | os.PathLike) else ""
    return _FETCHERS.fullmatch(name) is not None


def _wanted_repository(error: BaseException | None) -> str | None:
    """Return the hub repository that an error or its causes concern; None if there is none."""
    while error is not None:
        if type(error).__name__ in ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "FetchRefusedError"):
            for frame, _ in traceback.walk_tb(error.__traceback__):
                repository = frame.f_locals.get("repo_id")
                if isinstance(repository, str) and _REPOSITORY.fullmatch(repository):
                    return repository
        error = error.__cause__ or error.__context__
    return None


class LoadAbandonedError(Exception):
    """Error if the load was abandoned between two chunks of weights or two pieces of a file."""


def named_load_errors(folder: Path) -> AbstractContextManager[None]:
    """Convert any exception within into a problem with a reason (`named_failures`).

    Raises:
        ProblemError: The same error if raised within; else 503 `load_failed`.
        LoadAbandonedError: The same error if raised within.
    """
    return named_failures(folder, passing=(LoadAbandonedError,))
