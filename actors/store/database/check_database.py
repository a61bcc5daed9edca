"""A quick check that a database is usable, without importing sqlite-utils."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from greenroom.actors.store.database.database_file import UnusableDatabase, database_uri, prepare_file
from greenroom.actors.store.database.migrations import SET, check_version

_LOOK_SECONDS = 0.1
_APPLIED = "select name from _sqlite_migrations where migration_set = ?"


def check_database(name: str) -> None:
    """Create the database file if it is missing, and check that this version can use it.

    Raises:
        UnusableDatabase: The database is unusable.
    """
    try:
        path = Path(name).expanduser()
        prepare_file(path)
        check_contents(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise UnusableDatabase(str(error)) from error


def check_contents(path: Path) -> None:
    """Check that this version can use an existing database file, which stays unchanged.

    Raises:
        UnusableDatabase: The database is unusable.
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
