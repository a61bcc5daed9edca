"""Which server generates a turn of which conversation: one at a time, of all that share the database."""

from __future__ import annotations

from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.tables.servers_table import ServersTable
from greenroom.schemas.problems import ProblemError, conversation_in_use


class ClaimsTable:
    """Claims on conversations, by owner and id; a conversation that does not exist can be claimed.

    Within one server nothing is refused: it knows by itself what it generates.

    Args:
        boot: Name of this server.
    """

    def __init__(self, connection: Connection, servers: ServersTable, boot: str) -> None:
        self._connection = connection
        self._servers = servers
        self._boot = boot

    def claim(self, owner: str, conversation: str) -> None:
        """Claim a conversation, in a transaction.

        Raises:
            ProblemError: 409: another server that is alive has it.
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
        """Give a conversation free, in a transaction."""
        with self._connection.transaction():
            drop_claim(self._connection, owner, conversation, self._boot)


def drop_claim(connection: Connection, owner: str, conversation: str, boot: str) -> None:
    """Give a conversation free inside a transaction, if this server has it."""
    connection.write(
        "delete from greenroom_claims where owner = ? and conversation = ? and boot = ?",
        (owner, conversation, boot),
    )
