"""Turns of the fetches of one repository, so that processes share a download."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from greenroom.engine.catalog.hub.repository_lock import RepositoryLock

_POLL_SECONDS = 0.1


@asynccontextmanager
async def turn_to_fetch(hub_id: str, cache: Path, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock on a repository; a process that dies releases it.

    Args:
        on_wait: Callback, if another process or download holds it.

    Raises:
        ProblemError: 409: the model is being deleted.
        OSError: The file of the lock cannot be made.
    """
    with RepositoryLock(hub_id, cache) as lock:
        waiting = False
        while not lock.try_to_fetch():
            if not waiting:
                waiting = True
                on_wait()
            await trio.sleep(_POLL_SECONDS)
        yield
