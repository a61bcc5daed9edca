"""The table of secrets: random bytes that outlive the process."""

from __future__ import annotations

import os

from greenroom.actors.store.database.connection import Connection

_BYTES = 32


class SecretsTable:
    """Secrets by name; each is generated on first use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, name: str) -> bytes:
        """Return a secret, which is generated if it does not exist."""
        with self._connection.transaction():
            self._connection.write(
                "insert or ignore into greenroom_secrets (name, value) values (?, ?)",
                (name, os.urandom(_BYTES)),
            )
            row = self._connection.first("select value from greenroom_secrets where name = ?", (name,))
        assert row is not None
        return bytes(row["value"])
