"""The disk that the database leaves to others, and the bytes that it may have at most."""

from __future__ import annotations

import os

from greenroom.actors.store.database.connection import PAGE, Connection
from greenroom.actors.store.database.problems import disk_reserved, store_limit_reached
from greenroom.schemas.problems import ProblemError

RESERVED_BYTES = 256 << 20
"""Of the disk, which the database leaves free, as uploads do: with none left, nothing could be deleted."""


class Capacity:
    """Refuses what would be added when the database has enough already, or its disk too little.

    Args:
        max_bytes: That the database may have; None is unlimited.
        reserved: Bytes of the disk that stay free.
    """

    def __init__(
        self, connection: Connection, max_bytes: int | None = None, reserved: int = RESERVED_BYTES
    ) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._reserved = reserved

    def check(self) -> None:
        """Look before something is added.

        Raises:
            ProblemError: 507 that says which of the two is used up.
        """
        if self._max_bytes is not None and self._connection.used_pages() * PAGE >= self._max_bytes:
            raise ProblemError(store_limit_reached(self._max_bytes))
        path = self._connection.path
        if path is not None:
            disk = os.statvfs(path.parent)
            if disk.f_bavail * disk.f_frsize < self._reserved:
                raise ProblemError(disk_reserved(self._reserved))
