"""Opening of the database, with the settings and as one of the servers that share it."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import BUSY_TIMEOUT, Connection
from greenroom.actors.store.database.server_locks import ServerLock
from greenroom.actors.store.tables.servers_table import ServersTable
from greenroom.schemas.logs import get_logger
from greenroom.schemas.protocols.store_upkeep_protocol import Pruned

if TYPE_CHECKING:
    from sqlite_utils import Database

log = get_logger()


@attrs.frozen(eq=False)
class OpenStore:
    """An open database with its operations."""

    connection: Connection
    answers: Answers
    servers: ServersTable

    def prune(self) -> Iterator[Pruned | None]:
        """Run maintenance in steps; yield None after each, and finally the numbers of deleted objects."""
        self.servers.fail_unfinished()
        yield from self.answers.audit.prune()
        retention = self.answers.retention()
        for _ in retention.steps():
            yield None
        if retention.pruned != Pruned():
            log.info("pruned", actor="store", **attrs.asdict(retention.pruned))
        yield retention.pruned


class DatabaseOpener:
    """An opener of a server's database, for its first use and after a failure of its thread or file.

    Args:
        database: Database, as for `Connection`.
        storing: True if clients' content may be added.
        retention_days: Days without use after which data is deleted.
        max_bytes: Maximum size of the database in bytes; None for no limit.
        audit_days: Days after which a row of the audit is deleted.
        audit_rows: Maximum number of rows of the audit.

    Attributes:
        deadline: Time by `time.monotonic()` after which nothing waits for another process that writes.
    """

    def __init__(
        self,
        database: str | Database | sqlite3.Connection,
        *,
        storing: bool,
        retention_days: float,
        max_bytes: int | None = None,
        audit_days: float = math.inf,
        audit_rows: int = 1_000_000,
    ) -> None:
        self._database = database
        self._storing = storing
        self._retention_days = retention_days
        self._max_bytes = max_bytes
        self._audit_days = audit_days
        self._audit_rows = audit_rows
        self._boot = uuid.uuid4().hex
        self._lock: ServerLock | None = None
        self.deadline = math.inf

    def open(self, is_abandoned: Callable[[], bool], busy_timeout: float = BUSY_TIMEOUT) -> OpenStore:
        """Open the database, and fail the unfinished responses of dead servers.

        Args:
            is_abandoned: Callback before each commit that returns whether to roll back instead.
            busy_timeout: Seconds to wait for another process that writes.

        Raises:
            UnusableDatabase: The database cannot be opened.
            sqlite3.Error: The database cannot be opened.
            OSError: The database cannot be opened.
        """
        connection = Connection(self._database, is_abandoned, busy_timeout, lambda: self.deadline)
        try:
            # No other server can use a database in memory or without a file.
            if connection.path is not None and (self._lock is None or not self._lock.holds()):
                self._lock = ServerLock(connection.path, self._boot)
            store = OpenStore(
                connection,
                Answers(
                    connection,
                    self._boot,
                    storing=self._storing,
                    retention_days=self._retention_days,
                    max_bytes=self._max_bytes,
                    audit_days=self._audit_days,
                    audit_rows=self._audit_rows,
                ),
                ServersTable(connection, self._boot),
            )
            store.servers.enter()
            log.info("database opened", actor="store", path=str(connection.path or "in memory"))
            store.servers.fail_unfinished()
        except BaseException:
            connection.close()
            raise
        return store

    def close(self, store: OpenStore | None) -> None:
        """Fail this server's unfinished responses, and close the database for good."""
        if store is not None:
            with contextlib.suppress(sqlite3.Error):
                store.connection.wait_for_others(BUSY_TIMEOUT)
                store.servers.leave()
            with contextlib.suppress(sqlite3.Error):
                store.connection.close()
        if self._lock is not None:
            self._lock.close()
