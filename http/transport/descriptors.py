"""Budget of file descriptors for connections, and a spare one for refusals."""

from __future__ import annotations

import os
import resource

from greenroom.schemas.logs import get_logger

log = get_logger(actor="http")

FILES = 256
"""Descriptors reserved for other uses: weight files, cache blocks, pipes, logs."""
REFUSALS = 32
"""Largest number of connections beyond the limit that are refused concurrently."""


def needed_descriptors(max_connections: int) -> int:
    """Return the descriptor limit that a process needs for that many connections."""
    return max_connections + REFUSALS + FILES + _open_descriptors()


def connection_capacity(max_connections: int) -> tuple[int, int]:
    """Return the numbers of connections and of concurrent refusals that the descriptor limit allows.

    If descriptors are scarce, a third of them is reserved for files and an eighth for refusals.
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
    """A reserved descriptor, released to accept and refuse a connection when no other is left.

    Without it, clients would wait in the listener's queue without a response.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.reserve()

    def release(self) -> None:
        """Close the descriptor, so that the next one opened can take its place."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def reserve(self) -> None:
        """Open the descriptor again if possible."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._descriptor = None
