"""Reading of what is known about models without a store, by commands that are no server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from greenroom.actors.store import models_table
from greenroom.actors.store.connection import Row
from greenroom.actors.store.keys_table import FIND_TABLE, LIST_KEYS, record_of
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import ProbedCapabilities, WorkingSpace
from greenroom.schemas.settings.caller import KeyRecord

log = get_logger()

_BUSY_SECONDS = 1.0

Found = TypeVar("Found")


def read_capabilities(database: Path | sqlite3.Connection) -> tuple[ProbedCapabilities, ...]:
    """Return the records of probes in a database; none if it is missing, has none, or cannot be read.

    Nothing is created or changed.

    Args:
        database: Path of a database file, or an open database that nothing else uses meanwhile.
    """
    table = models_table
    return _read(database, table.TABLE, table.FIELDS, table.record_of)


def read_working_space(database: Path | sqlite3.Connection) -> tuple[WorkingSpace, ...]:
    """Return the measured working space of models in a database, as `read_capabilities` does."""
    table = models_table
    return _read(database, table.WORKING_SPACE_TABLE, table.WORKING_SPACE_FIELDS, table.working_space_of)


def _read(
    database: Path | sqlite3.Connection,
    table: str,
    fields: Sequence[str],
    found_in: Callable[[Row], Found | None],
) -> tuple[Found, ...]:
    try:
        if isinstance(database, sqlite3.Connection):
            rows = _rows_of(database, table, fields)
        else:
            path = database.expanduser()
            if not path.is_file():
                return ()
            uri = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, timeout=_BUSY_SECONDS, uri=True)) as connection:
                rows = _rows_of(connection, table, fields)
    except (sqlite3.Error, OSError, RuntimeError, ValueError) as error:
        log.warning("capabilities unreadable", actor="store", db=str(database), reason=str(error))
        return ()
    return tuple(each for row in rows if (each := found_in(row)) is not None)


def _rows_of(connection: sqlite3.Connection, table: str, fields: Sequence[str]) -> list[Row]:
    known = "select 1 from sqlite_master where type = 'table' and name = ?"
    with closing(connection.cursor()) as cursor:
        if cursor.execute(known, (table,)).fetchone() is None:
            return []
        cursor.row_factory = sqlite3.Row
        return cursor.execute(f"select {', '.join(fields)} from {table} order by 1").fetchall()


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """Return the keys in a database file; none if there is no file, or one without keys.

    Nothing is created or changed.

    Raises:
        sqlite3.Error: The file cannot be read.
        OSError: The file cannot be read.
    """
    path = path.expanduser()
    if not path.is_file():
        return ()
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, timeout=_BUSY_SECONDS, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        if connection.execute(FIND_TABLE).fetchone() is None:
            return ()
        return tuple(map(record_of, connection.execute(LIST_KEYS)))
