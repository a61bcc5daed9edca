"""Opening of the database with the settings, by the one server that has it."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.store.answers import Tables
from greenroom.actors.store.database.connection import BUSY_TIMEOUT, Connection
from greenroom.actors.store.database.database_file import MEMORY
from greenroom.actors.store.database.server_locks import ServerLock
from greenroom.schemas.logs import get_logger
from greenroom.schemas.protocols.store_protocol import Pruned

if TYPE_CHECKING:
    from sqlite_utils import Database

log = get_logger()


@attrs.frozen(eq=False)
class OpenStore:
    """An open database with its operations.

    Args:
        keys: Connection to the database of the keys, which is a file's even where all else is in memory.
    """

    connection: Connection
    keys: Connection
    tables: Tables

    @property
    def moved(self) -> bool:
        """True if the file at its path has been replaced or deleted."""
        return self.keys.moved

    def wait_for_others(self, seconds: float) -> None:
        """Wait so long from now for another process that writes."""
        self.connection.wait_for_others(seconds)
        self.keys.wait_for_others(seconds)

    def close(self) -> None:
        self.connection.close()
        self.keys.close()

    def prune(self) -> Iterator[Pruned | None]:
        """Run maintenance in steps; yield None after each, and finally the numbers of deleted objects."""
        yield from self.tables.audit.prune()
        retention = self.tables.retention()
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
        self._is_taken = False
        self.deadline = math.inf

    def open(self, is_abandoned: Callable[[], bool], busy_timeout: float = BUSY_TIMEOUT) -> OpenStore:
        """Open the database, and fail what a server that had it before left unfinished.

        While another server has the database, only its keys are used; all else is in memory, until this
        server ends.

        Args:
            is_abandoned: Callback before each commit that returns whether to roll back instead.
            busy_timeout: Seconds to wait for another process that writes.

        Raises:
            UnusableDatabase: The database cannot be opened.
            sqlite3.Error: The database cannot be opened.
            OSError: The database cannot be opened.
        """
        connection = keys = Connection(self._database, is_abandoned, busy_timeout, lambda: self.deadline)
        try:
            if connection.path is not None and not self._owns(connection.path):
                connection = Connection(MEMORY, is_abandoned, busy_timeout, lambda: self.deadline)
            tables = Tables(
                connection,
                self._boot,
                storing=self._storing,
                retention_days=self._retention_days,
                max_bytes=self._max_bytes,
                audit_days=self._audit_days,
                audit_rows=self._audit_rows,
                keys=keys,
            )
            log.info("database opened", actor="store", path=str(connection.path or "in memory"))
            if failed := tables.responses.fail_unfinished():
                log.warning("responses of a stopped server failed", actor="store", responses=failed)
        except BaseException:
            connection.close()
            keys.close()
            raise
        return OpenStore(connection, keys, tables)

    def close(self, store: OpenStore | None) -> None:
        """Fail this server's unfinished responses, and close the database for good."""
        if store is not None:
            with contextlib.suppress(sqlite3.Error):
                store.wait_for_others(BUSY_TIMEOUT)
                store.tables.responses.fail_unfinished(own=True)
            with contextlib.suppress(sqlite3.Error):
                store.close()
        self.release()

    def release(self) -> None:
        """Leave the database to other servers."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _owns(self, path: Path) -> bool:
        """Return whether this server has the database, which it takes unless another one has it."""
        if self._is_taken or (self._lock is not None and self._lock.holds()):
            return not self._is_taken
        self.release()
        try:
            self._lock = ServerLock(path)
        except BlockingIOError:
            self._is_taken = True
            log.warning(
                "another server has the database",
                actor="store",
                path=str(path),
                effect="all but the keys is kept in memory until this server ends",
                instead="--db with a file of its own",
            )
        return not self._is_taken
