"""Offline guard: prevents libraries from downloading missing files while they load or compute."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CONNECTING = frozenset({"socket.connect", "socket.getaddrinfo"})
"""Audit events that Python raises before it connects or resolves a name (`sys.addaudithook`)."""

_FETCHERS = re.compile(r"(python|pip|uv|conda|curl|wget|git)[\d.]*(\.exe)?", re.IGNORECASE)
"""Programs through which a library may download; others, such as `ldconfig`, only inspect the system."""

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
        FetchRefusedError: Raised at any such attempt.
    """
    _install()
    depth = _thread.depth
    _thread.depth = depth + 1
    try:
        yield
    finally:
        _thread.depth = depth


def _install() -> None:
    global _installed
    with _lock:
        if not _installed:
            sys.addaudithook(_refuse)
            _installed = True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not _thread.depth:
        return
    if event in _CONNECTING or (event == "subprocess.Popen" and _fetches(arguments[0])):
        raise FetchRefusedError(
            "it needs files that its folder does not have, and would fetch them; only the model that was "
            "asked for is ever downloaded"
        )


def _fetches(program: object) -> bool:
    name = os.path.basename(os.fsdecode(program)) if isinstance(program, str | bytes | os.PathLike) else ""
    return _FETCHERS.fullmatch(name) is not None
