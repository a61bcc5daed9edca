"""Loading and computing without the network: libraries fetch what they miss, unasked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_REFUSED = frozenset({"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"})
"""What Python reports before it is done (`sys.addaudithook`); a package is installed by a child process."""

_lock = threading.Lock()


class _Thread(threading.local):
    depth = 0


_thread = _Thread()
_installed = False


class FetchRefusedError(RuntimeError):
    """Foreign code wanted to fetch something. It is no OSError, which network libraries would try again."""


@contextmanager
def offline() -> Iterator[None]:
    """Refuse this thread any connection and child process; other threads are not concerned.

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


def _refuse(event: str, _: tuple[object, ...]) -> None:
    if event in _REFUSED and _thread.depth:
        raise FetchRefusedError(
            "it needs files that its folder does not have, and would fetch them; only the model that was "
            "asked for is ever downloaded"
        )
