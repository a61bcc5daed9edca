"""Loading and computing without the network: libraries fetch what they miss, unasked."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CONNECTING = frozenset({"socket.connect", "socket.getaddrinfo"})
"""What Python reports before it is done (`sys.addaudithook`)."""

_FETCHERS = re.compile(r"(python|pip|uv|conda|curl|wget|git)[\d.]*(\.exe)?", re.IGNORECASE)
"""Programs that a library has fetch for it; others only look at the system, as `ldconfig` does."""

_lock = threading.Lock()


class _Thread(threading.local):
    depth = 0


_thread = _Thread()
_installed = False


class FetchRefusedError(RuntimeError):
    """Foreign code wanted to fetch something. It is no OSError, which network libraries would try again."""


@contextmanager
def offline() -> Iterator[None]:
    """Refuse this thread connections, and child processes that fetch; other threads are not concerned.

    Raises:
        FetchRefusedError: From whatever is tried.
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
