"""Limits on the database's size: free disk space to keep, and a maximum in bytes."""

from __future__ import annotations

import os

from greenroom.actors.store.database.connection import PAGE, Connection
from greenroom.actors.store.database.problems import disk_reserved, store_limit_reached
from greenroom.schemas.problems import ProblemError

RESERVED_BYTES = 256 << 20
"""Bytes of the disk that the database leaves free, as uploads do; on a full disk not even deleting works."""


class Capacity:
    """A check of the database's size and of free disk space before data is added.

    Args:
        max_bytes: Maximum size of the database in bytes; None for no limit.
        reserved: Disk space to leave free, in bytes.
    """

    def __init__(
        self, connection: Connection, max_bytes: int | None = None, reserved: int = RESERVED_BYTES
    ) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._reserved = reserved

    def check(self) -> None:
        """Check the limits before data is added.

        Raises:
            ProblemError: 507 that names the exceeded limit.
        """
        if self._max_bytes is not None and self._connection.used_pages() * PAGE >= self._max_bytes:
            raise ProblemError(store_limit_reached(self._max_bytes))
        path = self._connection.path
        if path is not None:
            disk = os.statvfs(path.parent)
            if disk.f_bavail * disk.f_frsize < self._reserved:
                raise ProblemError(disk_reserved(self._reserved))
