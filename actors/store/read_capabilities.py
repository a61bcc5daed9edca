"""Reading of probed capabilities without a store, by commands that are no server."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from greenroom.actors.store.tables.capabilities_table import FIELDS, TABLE, record_of
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import ProbedCapabilities

log = get_logger()

_BUSY_SECONDS = 1.0


def read_capabilities(database: Path | sqlite3.Connection) -> tuple[ProbedCapabilities, ...]:
    """Return the records in a database; none if it is missing, has no such table, or cannot be read.

    Nothing is created or changed.

    Args:
        database: Path of a database file, or an open database that nothing else uses meanwhile.
    """
    try:
        if isinstance(database, sqlite3.Connection):
            return _records_of(database)
        path = database.expanduser()
        if not path.is_file():
            return ()
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, timeout=_BUSY_SECONDS, uri=True)) as connection:
            return _records_of(connection)
    except (sqlite3.Error, OSError, RuntimeError, ValueError) as error:
        log.warning("capabilities unreadable", actor="store", db=str(database), reason=str(error))
        return ()


def _records_of(connection: sqlite3.Connection) -> tuple[ProbedCapabilities, ...]:
    known = "select 1 from sqlite_master where type = 'table' and name = ?"
    with closing(connection.cursor()) as cursor:
        if cursor.execute(known, (TABLE,)).fetchone() is None:
            return ()
        cursor.row_factory = sqlite3.Row
        rows = cursor.execute(f"select {', '.join(FIELDS)} from {TABLE} order by model_id").fetchall()
    return tuple(filter(None, map(record_of, rows)))
