"""Reading of API keys without a store: before a server listens, and where its store cannot open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from greenroom.actors.store.tables.keys_table import FIND_TABLE, LIST_KEYS, record_of
from greenroom.schemas.settings.key_record import KeyRecord

_BUSY_SECONDS = 1.0


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
