"""A connection to the database, used by one thread: statements, room on the disk, and the first check."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.actors.core.fair_share import share_left
from greenroom.actors.store.database_file import (
    MEMORY,
    UnusableDatabase,
    database_uri,
    import_sqlite_utils,
    prepare_file,
)
from greenroom.actors.store.migrations import SET, check_version, load_migrations
from greenroom.actors.store.problems import (
    disk_reserved,
    store_limit_reached,
    store_share_reached,
    storing_disabled,
)
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import EVERYBODY

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.db import Table


BUSY_TIMEOUT = 5.0  # Maximum seconds to wait for another process that writes

BUSY_SLICE = 0.1  # Seconds of such a wait within SQLite, which cannot be cut short

MAX_MEMORY = 1 << 30  # Maximum size of an in-memory database, in bytes
PAGE = 4096
MAX_LOG = 16 << 20  # Maximum size of the write-ahead log after a checkpoint, in bytes

Row = sqlite3.Row
Parameters = Sequence[Any] | Mapping[str, Any]


class TransactionAbandoned(Exception):
    """An error for a transaction that was rolled back because nobody waits for its outcome."""


class Connection:
    """A database connection for reads and transactions.

    Args:
        database: Path, `:memory:`, or an open database, which stays open, must have been created with
            `check_same_thread=False`, and must not be used by anything else meanwhile.
        is_abandoned: Callback before each commit that returns whether to roll back instead.
        busy_timeout: Seconds to wait for another process that writes, until `wait_for_others` changes it.
        deadline: Returns a time by `time.monotonic()`, which may change; after it nothing waits for others.

    Attributes:
        path: Path of the file; None if the database is in memory.

    Raises:
        UnusableDatabase: The database cannot be opened.
        sqlite3.Error: The database cannot be opened.
    """

    def __init__(
        self,
        database: str | Database | sqlite3.Connection,
        is_abandoned: Callable[[], bool] = lambda: False,
        busy_timeout: float = BUSY_TIMEOUT,
        deadline: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._is_abandoned, self._deadline = is_abandoned, deadline
        self._wait_until = -math.inf
        self._own = isinstance(database, str)
        self._database = _open(database, busy_timeout) if isinstance(database, str) else _adopt(database)
        self._connection = self._database.conn
        try:
            self.wait_for_others(busy_timeout)
            self.path = self._find_path()
            self._file = self.path.stat() if self._own and self.path is not None else None
            self._migrate()
        except BaseException:
            self.close()
            raise

    def wait_for_others(self, seconds: float) -> None:
        """Wait so long from now for another process that writes, unless the connection was passed in."""
        self._wait_until = time.monotonic() + seconds if self._own else -math.inf

    def read(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        return list(self.rows(statement, parameters))

    def rows(self, statement: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Yield the rows of a query as they are found. Close the iterator if it is not exhausted."""
        cursor = self._connection.cursor()
        cursor.row_factory = Row
        try:
            yield from cursor.execute(statement, parameters)
        finally:
            cursor.close()

    def first(self, statement: str, parameters: Parameters = ()) -> Row | None:
        cursor = self._connection.cursor()
        cursor.row_factory = Row
        try:
            row: Row | None = cursor.execute(statement, parameters).fetchone()
            return row
        finally:
            cursor.close()

    def table(self, name: str) -> Table:
        """Return a table of sqlite-utils, to change inside a transaction; slower than a statement. Raises
        sqlite3.OperationalError: the table is gone; sqlite-utils would create it, without its indexes.
        """
        table = self._database.table(name)
        if not table.exists():
            raise sqlite3.OperationalError(f"no such table: {name}")
        return table

    def write(self, statement: str, parameters: Parameters = ()) -> int:
        """Execute a statement inside a transaction, and return the number of changed rows."""
        return self._connection.execute(statement, parameters).rowcount

    def insert(self, table: str, values: dict[str, Any]) -> int:
        """Insert a row inside a transaction, and return its number."""
        columns, places = ", ".join(values), ", ".join("?" * len(values))
        statement = f"insert into {table} ({columns}) values ({places})"
        return self._connection.execute(statement, tuple(values.values())).lastrowid or 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._connection.in_transaction:
            raise RuntimeError("a function that is run without `writes` may only read")
        self._begin()
        try:
            yield
            if self._is_abandoned():
                raise TransactionAbandoned
            self._connection.execute("commit")
        except BaseException:
            # A full disk has already rolled it back.
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def _begin(self) -> None:
        """Begin to write, once other processes let it."""
        while True:
            try:
                self._connection.execute("begin immediate")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= min(self._wait_until, self._deadline()):
                    raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read a consistent snapshot in the block, whatever other processes write."""
        self._connection.execute("begin")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    @property
    def moved(self) -> bool:
        """True if the file at its path has been replaced or deleted."""
        if self._file is None or self.path is None:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return not os.path.samestat(found, self._file)

    def vacuum(self, pages: int) -> bool:
        """Return free pages to the disk, and return whether there are more to return."""
        free = self._free_pages()
        if free <= pages:
            return False
        # `execute` would run a single step, which returns one page.
        self._connection.executescript(f"pragma incremental_vacuum({pages:d})")
        return self._free_pages() < free

    def write_back(self) -> None:
        """Write the write-ahead log back to the file, since it still contains deleted data."""
        self.first("pragma wal_checkpoint(truncate)")

    def used_pages(self) -> int:
        """Return the number of used pages, of `PAGE` bytes unless another program created the database."""
        row = self.first("pragma page_count")
        return (0 if row is None else int(row[0])) - self._free_pages()

    def _free_pages(self) -> int:
        row = self.first("pragma freelist_count")
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        """Close the connection, unless it was passed in."""
        if self._own:
            self._database.close()

    def _find_path(self) -> Path | None:
        name = next(row[2] for row in self.read("pragma database_list") if row[1] == "main")
        return Path(name) if name else None

    def _migrate(self) -> None:
        migrations = load_migrations()
        check_version(applied.name for applied in migrations.applied(self._database))
        if migrations.pending(self._database):
            # Another process may migrate at the same time, so pending migrations are looked up again inside.
            with self.transaction():
                migrations.apply(self._database)


def _enable_wal(database: Database, busy_timeout: float) -> None:
    """Enable the write-ahead log; SQLite itself does not wait for another process that does so."""
    deadline = time.monotonic() + busy_timeout
    while True:
        try:
            database.enable_wal()
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    """Return whether another process writes."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _open(name: str, busy_timeout: float) -> Database:
    if name != MEMORY:
        prepare_file(Path(name))
    target = MEMORY if name == MEMORY else database_uri(Path(name))
    connection = sqlite3.connect(target, timeout=BUSY_SLICE, uri=True)
    database = _wrap(connection)
    try:
        if not next(connection.execute("pragma page_count"))[0]:
            connection.execute("pragma auto_vacuum = incremental")
        _enable_wal(database, busy_timeout)
        # Commits survive a power failure; this costs milliseconds in a turn that takes seconds.
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")
        if name == MEMORY:
            connection.execute(f"pragma max_page_count = {MAX_MEMORY // PAGE}")
        else:
            # Deleted data is erased from the file; and one large turn must not leave a large log.
            connection.execute("pragma secure_delete = on")
            connection.execute(f"pragma journal_size_limit = {MAX_LOG}")
    except BaseException:
        connection.close()
        raise
    return database


def _adopt(database: Database | sqlite3.Connection) -> Database:
    connection = database if isinstance(database, sqlite3.Connection) else database.conn
    try:
        connection.execute("select 1")
    except sqlite3.ProgrammingError as error:
        raise UnusableDatabase("the database that was passed in needs `check_same_thread=False`") from error
    if connection.in_transaction:
        raise UnusableDatabase("the database that was passed in has an open transaction")
    return _wrap(connection)


def _wrap(connection: sqlite3.Connection) -> Database:
    database: Database = import_sqlite_utils().Database(
        connection, recursive_triggers=False, execute_plugins=False
    )
    return database


RESERVED_BYTES = 256 << 20
"""Bytes of the disk that the database leaves free, as uploads do; on a full disk not even deleting works."""


@attrs.frozen(eq=False)
class Capacity:
    """A check of the database's size and of free disk space before data is added.

    Args:
        max_bytes: Maximum size of the database in bytes; None for no limit.
        reserved: Disk space to leave free, in bytes.
        storing: True if clients' content may be added.
    """

    _connection: Connection
    _max_bytes: int | None = None
    _reserved: int = RESERVED_BYTES
    _storing: bool = attrs.field(default=True, kw_only=True)

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


_LOOK_SECONDS = 0.1
_APPLIED = "select name from _sqlite_migrations where migration_set = ?"


def check_database(name: str) -> None:
    """Create the database file if it is missing, and check that this version can use it. Raises
    UnusableDatabase: the database is unusable.
    """
    try:
        path = Path(name).expanduser()
        prepare_file(path)
        check_contents(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise UnusableDatabase(str(error)) from error


def check_contents(path: Path) -> None:
    """Check that this version can use an existing database file, which stays unchanged. Raises
    UnusableDatabase: the database is unusable.
    """
    try:
        with closing(sqlite3.connect(database_uri(path), timeout=_LOOK_SECONDS, uri=True)) as connection:
            tables = {row[0] for row in connection.execute("select name from sqlite_master")}
            applied = []
            if "_sqlite_migrations" in tables:
                applied = [row[0] for row in connection.execute(_APPLIED, (SET,))]
            check_version(applied)
            taken = sorted(name for name in tables if name.startswith(f"{SET}_"))
            if taken and not applied:
                raise UnusableDatabase(f"another program has made it, with a table '{taken[0]}'")
    except sqlite3.Error as error:
        # A database locked by another process is still a database.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise UnusableDatabase(str(error)) from error
