"""The tables of an open database, and the message that has the store run a function on them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import attrs

from greenroom.actors.core.ref import Ref, answer_or_failed
from greenroom.actors.store.audit_table import AuditTable
from greenroom.actors.store.completions_table import CompletionsTable
from greenroom.actors.store.connection import Capacity, Connection
from greenroom.actors.store.conversations_table import ConversationsTable, Histories
from greenroom.actors.store.items_table import ItemsTable
from greenroom.actors.store.keys_table import KeysTable, SecretsTable
from greenroom.actors.store.models_table import CapabilitiesTable, WorkingSpaceTable
from greenroom.actors.store.responses_table import ResponsesTable
from greenroom.actors.store.retention import Retention
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed, DescribeStore, Prune

T = TypeVar("T")

DAY = 86_400.0


class Tables:
    """The tables of a connection.

    Args:
        boot: Unique id of this server process.
        storing: True if clients' content may be added.
        retention_days: Days without use after which data is deleted; inf keeps everything.
        max_bytes: Maximum size of the database in bytes; None for no limit.
        audit_days: Days after which a row of the audit is deleted.
        audit_rows: Maximum number of rows of the audit.
        keys: Connection to the database of the keys; None for the same one.
    """

    def __init__(
        self,
        connection: Connection,
        boot: str,
        *,
        storing: bool = True,
        retention_days: float = math.inf,
        max_bytes: int | None = None,
        audit_days: float = math.inf,
        audit_rows: int = 1_000_000,
        keys: Connection | None = None,
    ) -> None:
        self._connection = connection
        self._capacity = capacity = Capacity(connection, max_bytes, storing=storing)
        self._retention_days = retention_days
        self.items = ItemsTable(connection)
        self.conversations = ConversationsTable(connection, self.items, capacity)
        self.responses = ResponsesTable(connection, self.items, self.conversations, capacity, boot)
        self.histories = Histories(connection, self.items, self.conversations)
        self.completions = CompletionsTable(connection, capacity)
        self.secrets = SecretsTable(connection)
        self.capabilities = CapabilitiesTable(connection)
        self.working_space = WorkingSpaceTable(connection)
        self.audit = AuditTable(connection, audit_days, audit_rows, capacity)
        self.keys = KeysTable(keys or connection)

    def answer(self, message: Run[Any] | CheckStoring) -> Result | Committed:
        """Return the answer to a message.

        Raises:
            ProblemError: The message cannot be executed; nothing has been changed.
            sqlite3.Error: The database failed; nothing has been changed.
        """
        if isinstance(message, CheckStoring):
            self._capacity.check(message.owner)
            with self._connection.transaction():
                return Committed()
        if message.writes:
            return Result(_finished(message.function(self)))
        with self._connection.snapshot():
            return Result(_finished(message.function(self)))

    def retention(self) -> Retention:
        """Return a retention pass, which deletes data unused for too long."""
        cutoff = time.time() - self._retention_days * DAY
        return Retention(self._connection, self.responses, self.conversations, cutoff)


@attrs.frozen(eq=False)
class Run(Generic[T]):
    """Run a function on the tables, on the store's thread and in the order of the messages. Reply: Result.

    The function is synchronous and short, since all other messages wait for it, and what it returns is plain
    data. A `ProblemError` that it raises is the reply. `ask_store` sends it.

    Args:
        writes: True if it changes the database: it is run even if nobody waits for it any more. Otherwise
            all that it reads is of one moment.
        unused: Result where the database is in memory and nothing has used it yet; None opens it.
    """

    function: Callable[[Tables], T]
    writes: bool = False
    unused: T | None = None


@attrs.frozen
class Result:
    """The value of the function of a `Run`."""

    value: Any


StoreMessage = Run[Any] | CheckStoring | Prune | DescribeStore
"""The messages that the store accepts. Any may be answered with `Failed`: a 404 that names the unknown object
(another owner's objects count as unknown), a 503 if the database cannot be used now, or a 507 if its disk is
full. A failed message has changed nothing, unless its function writes in several transactions."""


def name_of(message: StoreMessage) -> str:
    """Return the name of a message for the log; that of its function, if it has one."""
    what: object = message.function if isinstance(message, Run) else type(message)
    name: str = getattr(what, "__qualname__", type(message).__name__)
    return name.partition(".<locals>")[0]


async def ask_store(
    store: Ref[StoreMessage],
    function: Callable[[Tables], T],
    *,
    writes: bool = False,
    unused: T | None = None,
) -> T:
    """Return the value of a function on the store's tables; see `Run`.

    Raises:
        ProblemError: The function raises it, the database cannot be used, or the store has stopped.
    """
    answer = await ask_store_or_failed(store, function, writes=writes, unused=unused)
    if isinstance(answer, Failed):
        raise ProblemError(answer.problem)
    return answer


async def ask_store_or_failed(
    store: Ref[StoreMessage],
    function: Callable[[Tables], T],
    *,
    writes: bool = False,
    unused: T | None = None,
) -> T | Failed:
    """Return the value of a function on the store's tables, or why it failed; see `Run`."""
    answer = await answer_or_failed(store, Run(function, writes, unused), Result)
    if isinstance(answer, Failed):
        return answer
    value: T = answer.value
    return value


def _finished(value: T) -> T:
    """Return a function's value, unless it would be computed outside of the store's thread."""
    if isinstance(value, Coroutine | Generator):
        value.close()
        raise TypeError(f"a function of the store returned a {type(value).__name__}, which is not finished")
    return value
