"""A lock on a repository in the hub's cache, so that processes share a download."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

_POLL_SECONDS = 0.1
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


@asynccontextmanager
async def repository_lock(path: Path, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold a lock file; a process that dies releases it.

    Args:
        on_wait: Callback, if another process or download holds it.

    Raises:
        OSError: The file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        waiting = False
        while not _try_lock(descriptor):
            if not waiting:
                waiting = True
                on_wait()
            await trio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Return whether the lock is held now; a file system without locks counts as free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True
