"""Limits on the database's size: free disk space to keep, and a maximum in bytes."""

from __future__ import annotations

import os

from greenroom.actors.core.pot import share_left
from greenroom.actors.store.database.connection import PAGE, Connection
from greenroom.actors.store.database.problems import (
    disk_reserved,
    store_limit_reached,
    store_share_reached,
    storing_disabled,
)
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import EVERYBODY

RESERVED_BYTES = 256 << 20
"""Bytes of the disk that the database leaves free, as uploads do; on a full disk not even deleting works."""


class Capacity:
    """A check of the database's size and of free disk space before data is added.

    Args:
        max_bytes: Maximum size of the database in bytes; None for no limit.
        reserved: Disk space to leave free, in bytes.
        storing: True if clients' content may be added.
    """

    def __init__(
        self,
        connection: Connection,
        max_bytes: int | None = None,
        reserved: int = RESERVED_BYTES,
        *,
        storing: bool = True,
    ) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._reserved = reserved
        self._storing = storing

    def check(self, owner: str | None = None, added: int = 0) -> None:
        """Check the limits before data is added.

        Args:
            owner: Owner whose share is checked; None for what belongs to no client.
            added: Characters that the owner wants to add.

        Raises:
            ProblemError: 507 that names the exceeded limit; 400 if clients' content may not be added.
        """
        if owner is not None and not self._storing:
            raise ProblemError(storing_disabled())
        if self._max_bytes is not None:
            used = self._connection.used_pages() * PAGE
            if used >= self._max_bytes:
                raise ProblemError(store_limit_reached(self._max_bytes))
            if owner is not None:
                self._check_share(owner, added, used, self._max_bytes)
        path = self._connection.path
        if path is not None:
            disk = os.statvfs(path.parent)
            if disk.f_bavail * disk.f_frsize < self._reserved:
                raise ProblemError(disk_reserved(self._reserved))

    def _check_share(self, owner: str, added: int, used: int, most: int) -> None:
        """Refuse an owner more than its share; what is stored stays, so that a key alone gets half."""
        own = others = 0
        for row in self._connection.rows("select owner, nbytes from greenroom_owners where nbytes > 0"):
            own, others = (row["nbytes"], others) if row["owner"] == owner else (own, others + 1)
        if others:
            left = share_left(most, max(used, own + 1), own)
        elif owner != EVERYBODY:
            left = most // 2 - own
        else:
            return
        if left <= 0 or added > left:
            raise ProblemError(store_share_reached(own, most))
