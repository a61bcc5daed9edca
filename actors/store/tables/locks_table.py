"""Conversation locks, so that only one of the servers on a database generates a turn at a time."""

from __future__ import annotations

from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.tables.servers_table import ServersTable
from greenroom.schemas.problems import ProblemError, conversation_in_use


class LocksTable:
    """The conversation locks, by owner and id; even a conversation that does not exist can be locked.

    A server's own locks never fail here; it tracks its own runs itself.

    Args:
        boot: Unique id of this server process.
    """

    def __init__(self, connection: Connection, servers: ServersTable, boot: str) -> None:
        self._connection = connection
        self._servers = servers
        self._boot = boot

    def acquire(self, owner: str, conversation: str) -> None:
        """Lock a conversation, in a transaction.

        Raises:
            ProblemError: 409 while another live server holds the lock.
        """
        with self._connection.transaction():
            row = self._connection.first(
                "select boot from greenroom_claims where owner = ? and conversation = ?",
                (owner, conversation),
            )
            if row is not None and row["boot"] != self._boot and self._servers.is_alive(row["boot"]):
                raise ProblemError(conversation_in_use(conversation))
            self._connection.write(
                "insert or replace into greenroom_claims (owner, conversation, boot) values (?, ?, ?)",
                (owner, conversation, self._boot),
            )

    def release(self, owner: str, conversation: str) -> None:
        """Release a conversation, in a transaction."""
        with self._connection.transaction():
            drop_lock(self._connection, owner, conversation, self._boot)


def drop_lock(connection: Connection, owner: str, conversation: str, boot: str) -> None:
    """Release a conversation inside a transaction, if this server holds its lock."""
    connection.write(
        "delete from greenroom_claims where owner = ? and conversation = ? and boot = ?",
        (owner, conversation, boot),
    )
