"""The table of servers that use a database, and the cleanup after dead ones."""

from __future__ import annotations

import json
import time
from pathlib import Path

from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.database.server_locks import is_alive, remove_lock
from greenroom.schemas.logs import get_logger
from greenroom.schemas.stored import UNFINISHED

log = get_logger()

_ERROR = json.dumps(
    {"code": "server_error", "message": "The server stopped before the response was finished."}
)


class ServersTable:
    """The servers of a database, including this one.

    Args:
        boot: Unique id of this server process.
    """

    def __init__(self, connection: Connection, boot: str) -> None:
        self._connection = connection
        self._boot = boot
        self._path: Path | None = connection.path

    def enter(self) -> None:
        """Register this server, which holds its lock by now."""
        known = "select 1 from greenroom_servers where boot = ?"
        if self._connection.first(known, (self._boot,)) is not None:
            # This avoids a write, which would block if a hung thread holds a transaction.
            return
        with self._connection.transaction():
            row = {"boot": self._boot, "started": time.time()}
            self._connection.table("greenroom_servers").insert(row, ignore=True)

    def leave(self) -> None:
        """Remove this server, and fail its unfinished responses."""
        with self._connection.transaction():
            self._bury(self._boot)

    def settle(self, response: str, owner: str) -> None:
        """Fail a response, and its server's other unfinished ones, if that server has died."""
        row = self._connection.first(
            "select boot from greenroom_responses where id = ? and owner = ? and boot != ?",
            (response, owner, self._boot),
        )
        if row is not None and not self.is_alive(row["boot"]):
            self.fail_unfinished()

    def fail_unfinished(self) -> None:
        """Fail the unfinished responses of dead servers."""
        boots = [row["boot"] for row in self._connection.read("select boot from greenroom_servers")]
        dead = [boot for boot in boots if boot != self._boot and not self.is_alive(boot)]
        if not dead:
            return
        with self._connection.transaction():
            failed = sum(map(self._bury, dead))
        for boot in dead:
            if self._path is not None:
                remove_lock(self._path, boot)
        if failed:
            log.warning("responses of a stopped server failed", actor="store", responses=failed)

    def is_alive(self, boot: str) -> bool:
        """Return whether another server is running."""
        return self._path is not None and is_alive(self._path, boot)

    def _bury(self, boot: str) -> int:
        # This is the only change ever made to an answer; it would otherwise seem to be still in progress.
        failed = self._connection.write(
            "update greenroom_responses set status = 'failed', completed = ?, boot = null,"
            " body = json_set(body, '$.status', 'failed', '$.error', json(?))"
            f" where boot = ? and status in ({', '.join('?' * len(UNFINISHED))})",
            (time.time(), _ERROR, boot, *UNFINISHED),
        )
        for table in ("greenroom_claims", "greenroom_servers"):
            self._connection.table(table).delete_where("boot = ?", [boot])
        return failed
