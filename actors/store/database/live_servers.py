"""The question whether a server uses a database, asked by another process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from greenroom.actors.store.database.database_file import database_uri
from greenroom.actors.store.database.server_locks import is_alive

_TABLE = "select 1 from sqlite_master where type = 'table' and name = 'greenroom_servers'"


def has_live_server(database: Path) -> bool:
    """Return whether a running server has a database open.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    if not database.exists():
        return False
    with closing(sqlite3.connect(database_uri(database), uri=True)) as connection:
        if connection.execute(_TABLE).fetchone() is None:
            return False
        boots = [str(row[0]) for row in connection.execute("select boot from greenroom_servers")]
    return any(is_alive(database, boot) for boot in boots)
