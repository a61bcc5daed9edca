"""Offline guard: prevents libraries from downloading missing files while they load or compute.

Files in the hub's cache can still be read: some models that speak need a codec of another repository.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_CONNECTING = frozenset({"socket.connect", "socket.getaddrinfo"})
"""Audit events that Python raises before it connects or resolves a name (`sys.addaudithook`)."""

_FETCHERS = re.compile(r"(python|pip|uv|conda|curl|wget|git)[\d.]*(\.exe)?", re.IGNORECASE)
"""Programs through which a library may download; others, such as `ldconfig`, only inspect the system."""

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_REFUSED = (
    "it needs files that its folder does not have, and would fetch them; only the model that was asked for "
    "is ever downloaded"
)

_lock = threading.Lock()


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
