"""How many connections there are descriptors for, and one in reserve for when there are none."""

from __future__ import annotations

import os
import resource

from greenroom.schemas.logs import get_logger

log = get_logger(actor="http")

FILES = 256
"""Descriptors that are left for everything else: files of weights, a cache's blocks, pipes, logs."""
REFUSALS = 32
"""Connections over the limit that are being told so at once."""


def needed_descriptors(max_connections: int) -> int:
    """Return how many descriptors a process should be allowed that is to have so many connections."""
    return max_connections + REFUSALS + FILES + _open_descriptors()


def connection_capacity(max_connections: int) -> tuple[int, int]:
    """Return how many connections this process has room for, and how many refusals beside them.

    Where descriptors are few, a third of them is left for files and an eighth for refusals.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return max_connections, REFUSALS
    free = max(soft - _open_descriptors(), 0)
    refusals = max(min(REFUSALS, free // 8), 1)
    room = free - refusals - min(FILES, free // 3)
    if room < max_connections:
        log.warning("too few descriptors", descriptors=soft, connections=max(room, 1), wanted=max_connections)
    return max(min(max_connections, room), 1), refusals


def _open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


class SpareDescriptor:
    """A descriptor that is released to accept, and refuse, a connection that there is none for.

    Otherwise whoever connects then would wait in the listener's queue without a word.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.reserve()

    def release(self) -> None:
        """Close it: the next descriptor that is opened takes its place."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def reserve(self) -> None:
        """Open it again, if there is a descriptor for it."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._descriptor = None
