"""How the database is opened: with the settings, and as one server among those that use it."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs
import structlog

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import BUSY_TIMEOUT, Connection
from greenroom.actors.store.database.server_locks import ServerLock
from greenroom.actors.store.tables.servers_table import ServersTable
from greenroom.schemas.store_upkeep_protocol import Pruned

if TYPE_CHECKING:
    from sqlite_utils import Database

log = structlog.get_logger()


@attrs.frozen(eq=False)
class OpenStore:
    """An open database and what is asked of it."""

    connection: Connection
    answers: Answers
    servers: ServersTable

    def prune(self) -> Iterator[Pruned | None]:
        """Do step by step what is due now and then; yield None after each, at last what was deleted."""
        self.servers.fail_unfinished()
        retention = self.answers.retention()
        for _ in retention.steps():
            yield None
        if retention.pruned != Pruned():
            log.info("pruned", actor="store", **attrs.asdict(retention.pruned))
        yield retention.pruned


class DatabaseOpener:
    """Opens the database of one server: when it is first used, and again after its thread or the file failed.

    Args:
        database: As `Connection` has it.
        storing: Whether anything may be added.
        retention_days: Days after which what was not used is deleted.
        max_bytes: That it may have; None is unlimited.
    """

    def __init__(
        self,
        database: str | Database | sqlite3.Connection,
        *,
        storing: bool,
        retention_days: float,
        max_bytes: int | None = None,
    ) -> None:
        self._database = database
        self._storing = storing
        self._retention_days = retention_days
        self._max_bytes = max_bytes
        self._boot = uuid.uuid4().hex
        self._lock: ServerLock | None = None

    def open(self, is_abandoned: Callable[[], bool], busy_timeout: float = BUSY_TIMEOUT) -> OpenStore:
        """Open it, and fail what servers that have died left unfinished.

        Args:
            is_abandoned: Asked before each commit; a transaction that it abandons is undone.
            busy_timeout: Seconds to wait for another process that writes.

        Raises:
            UnusableDatabase: It cannot be opened.
            sqlite3.Error: Likewise.
            OSError: Likewise.
        """
        connection = Connection(self._database, is_abandoned, busy_timeout)
        try:
            # A database in memory, or one without a file, is nobody else's.
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
        """Fail what this server leaves unfinished, and close the database for good."""
        if store is not None:
            with contextlib.suppress(sqlite3.Error):
                store.servers.leave()
            with contextlib.suppress(sqlite3.Error):
                store.connection.close()
        if self._lock is not None:
            self._lock.close()
