"""The tables of an open database, those of the audit and of stored chats, and the message that uses them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs

from greenroom.actors.core.ref import Ref, answer_or_failed
from greenroom.actors.store.connection import Capacity, Connection, Row
from greenroom.actors.store.conversations_table import ConversationsTable, Histories
from greenroom.actors.store.items_table import ItemsTable, check_size, read_page
from greenroom.actors.store.keys_table import KeysTable, SecretsTable
from greenroom.actors.store.models_table import CapabilitiesTable, WorkingSpaceTable
from greenroom.actors.store.problems import not_found
from greenroom.actors.store.responses_table import ResponsesTable
from greenroom.actors.store.retention import Retention
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed, DescribeStore, Prune
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import (
    CALLS,
    AuditFilter,
    AuditPage,
    AuditRow,
    CompletionPage,
    KeyUsage,
    Order,
    StoredCompletion,
)

T = TypeVar("T")

DAY = 86_400.0


class Tables:
    """The tables of a connection, by default with the usual limits. `keys`: connection to the database of the
    keys; None for the same one.
    """

    def __init__(
        self,
        connection: Connection,
        boot: str,
        settings: Settings | None = None,
        keys: Connection | None = None,
    ) -> None:
        settings = settings or Settings()
        self._connection = connection
        self._capacity = Capacity(connection, settings.store_max_bytes, storing=settings.store_responses)
        capacity, self._retention_days = self._capacity, settings.store_retention_days
        self.items = ItemsTable(connection)
        self.conversations = ConversationsTable(connection, self.items, capacity)
        self.responses = ResponsesTable(connection, self.items, self.conversations, capacity, boot)
        self.histories = Histories(connection, self.items, self.conversations)
        self.completions = CompletionsTable(connection, capacity)
        self.secrets = SecretsTable(connection)
        self.capabilities = CapabilitiesTable(connection)
        self.working_space = WorkingSpaceTable(connection)
        self.audit = AuditTable(connection, settings.audit_days, settings.audit_rows, capacity)
        self.keys = KeysTable(keys or connection)

    def answer(self, message: Run[Any] | CheckStoring) -> Result | Committed:
        """Return the answer to a message. Raises ProblemError: the message cannot be executed; nothing has
        been changed. Raises sqlite3.Error: the database failed; nothing has been changed.
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
    """Return the value of a function on the store's tables; see `Run`. Raises ProblemError: the function
    raises it, the database cannot be used, or the store has stopped.
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


NO_METADATA: Mapping[str, str] = {}
_FIELDS = tuple(attrs.fields_dict(StoredCompletion))
_COLUMNS = ", ".join(("length", *_FIELDS))


class CompletionsTable:
    """Stored completions by id and owner; an unknown one raises a ProblemError with a 404."""

    def __init__(self, connection: Connection, capacity: Capacity) -> None:
        self._connection = connection
        self._capacity = capacity

    def save(self, completion: StoredCompletion) -> None:
        self._capacity.check(completion.owner, len(completion.body) + len(completion.messages))
        metadata = json.dumps(dict(completion.metadata))
        size = check_size([metadata, completion.messages, completion.body])
        with self._connection.transaction():
            values = attrs.asdict(completion) | {"metadata": metadata, "used": time.time(), "length": size}
            self._connection.table("greenroom_completions").insert(values)

    def find(self, name: str, owner: str) -> StoredCompletion:
        row = self._connection.first(
            f"select {_COLUMNS} from greenroom_completions where id = ? and owner = ?", (name, owner)
        )
        if row is None:
            raise ProblemError(not_found("chat completion", name))
        return _completion(row)

    def list(
        self,
        owner: str,
        after: str | None = None,
        limit: int = 20,
        order: Order = "asc",
        model: str | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> CompletionPage:
        """Return a page of an owner's completions, or raise a 404 if `after` is not among them. `model`:
        model filter; None for every model; `metadata`: metadata entries that a completion must have.
        """
        condition, values = "owner = ?", [owner]
        if model is not None:
            condition += " and model = ?"
            values.append(model)
        for key, value in metadata.items():
            condition += " and exists (select 1 from json_each(metadata) where key = ? and value = ?)"
            values += [key, value]
        chosen: tuple[Any, ...] = tuple(values)
        rows, has_more = read_page(
            self._connection, "greenroom_completions", _COLUMNS, condition, chosen, after, limit, order
        )
        return CompletionPage(tuple(map(_completion, rows)), has_more)

    def update(self, name: str, owner: str, metadata: Mapping[str, str]) -> StoredCompletion:
        text = json.dumps(dict(metadata))
        check_size([text])
        with self._connection.transaction():
            if (added := len(text) - len(json.dumps(dict(self.find(name, owner).metadata)))) > 0:
                self._capacity.check(owner, added)
            self._connection.write(
                "update greenroom_completions set metadata = ?, used = ? where id = ? and owner = ?",
                (text, time.time(), name, owner),
            )
            return self.find(name, owner)

    def delete(self, name: str, owner: str) -> None:
        with self._connection.transaction():
            if not self._connection.write(
                "delete from greenroom_completions where id = ? and owner = ?", (name, owner)
            ):
                raise ProblemError(not_found("chat completion", name))


def _completion(row: Row) -> StoredCompletion:
    values = {name: row[name] for name in _FIELDS}
    return StoredCompletion(**values | {"metadata": json.loads(row["metadata"])})


FIELDS = tuple(field.name for field in attrs.fields(AuditRow))
SUMS = tuple(field.name for field in attrs.fields(KeyUsage))
SLICE = 1_000  # Most rows that a transaction deletes
USAGE_DAYS = 400  # Days for which usage is kept, longer than the rows
BY_STRANGERS = "ending in ('refused', 'cancelled') and owner in ('', 'strangers') and model = ''"
"""Condition of the rows of refused requests whose sender is unknown; they have an index."""
_INSERT = (
    f"insert or ignore into greenroom_audit ({', '.join(FIELDS)}) values ({', '.join('?' * len(FIELDS))})"
)
_ADD_USAGE = (
    f"insert into greenroom_usage ({', '.join(SUMS)}) values ({', '.join('?' * len(SUMS))})"
    " on conflict (day, owner) do update set "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS[2:])
)


class AuditTable:
    """The rows of ended requests, and the usage of each key and day. `most`: maximum number of rows that stay
    after a retention pass.
    """

    def __init__(self, connection: Connection, days: float, most: int, capacity: Capacity) -> None:
        self._connection = connection
        self._days = days
        self._most = most
        self._capacity = capacity

    def save(self, rows: tuple[AuditRow, ...]) -> None:
        """Store rows, and add the new ones to the usage; a row that is stored already stays as it is."""
        self._capacity.check()
        used: dict[tuple[str, str], list[float]] = {}
        with self._connection.transaction():
            for row in rows:
                is_new = self._connection.write(_INSERT, attrs.astuple(row))
                if is_new and row.protocol != CALLS:  # these are parts of requests
                    sums = used.setdefault((_day(row.time), row.owner), [0] * (len(SUMS) - 2))
                    sums[:] = map(sum, zip(sums, _amounts(row), strict=True))
            for key, sums in used.items():
                self._connection.write(_ADD_USAGE, (*key, *sums))

    def list(self, asked: AuditFilter) -> AuditPage:
        filters = {
            "number < ?": asked.after,
            "time >= ?": asked.since,
            "time < ?": asked.until,
            "model = ?": asked.model,
            "status = ?": asked.status,
            "ending = ?": asked.ending,
        }
        given = {text: value for text, value in filters.items() if value is not None}
        conditions = [*given, *([_owned(asked.owners)] if asked.owners else [])]
        where = f" where {' and '.join(conditions)}" if conditions else ""
        found = self._connection.read(
            f"select number, {', '.join(FIELDS)} from greenroom_audit{where} order by number desc limit ?",
            (*given.values(), *asked.owners, asked.limit + 1),
        )
        rows = tuple((int(row["number"]), _row(dict(row))) for row in found[: asked.limit])
        return AuditPage(rows, len(found) > asked.limit)

    def usage(
        self, since: str = "", owners: tuple[str, ...] = (), limit: int = 1_000
    ) -> tuple[KeyUsage, ...]:
        """Return the usage by day and key, the latest day first. `since`: first day in UTC, as `2026-11-24`;
        `owners`: ids of keys; empty for all.
        """
        owned = f" and {_owned(owners)}" if owners else ""
        found = self._connection.read(
            f"select {', '.join(SUMS)} from greenroom_usage where day >= ?{owned}"
            " order by day desc, owner limit ?",
            (since, *owners, limit),
        )
        return tuple(KeyUsage(**dict(row)) for row in found)

    def prune(self) -> Iterator[None]:
        """Delete old rows, and then the oldest of too many, strangers' first; a slice in each step."""
        now = time.time()
        with self._connection.transaction():
            self._connection.write(
                "delete from greenroom_usage where day < ?", (_day(now - USAGE_DAYS * DAY),)
            )
        while self._delete("time < ?", now - self._days * DAY):
            yield
        # Whoever has no key could otherwise push out the rows of those who have one.
        over = int(self._connection.read("select count(*) from greenroom_audit")[0][0]) - self._most
        for whose in (f"{BY_STRANGERS} and number > ?", "number > ?"):
            while over > 0 and (deleted := self._delete(whose, 0, over)):
                over -= deleted
                yield

    def _delete(self, condition: str, value: float, most: int = SLICE) -> int:
        """Delete the oldest rows of those that match, in a transaction, and return their number."""
        with self._connection.transaction():
            return self._connection.write(
                "delete from greenroom_audit where number in"
                f" (select number from greenroom_audit where {condition} order by number limit ?)",
                (value, min(SLICE, most)),
            )


def _owned(owners: tuple[str, ...]) -> str:
    return f"owner in ({', '.join('?' * len(owners))})"


def _row(values: dict[str, Any]) -> AuditRow:
    return AuditRow(**{name: values[name] for name in FIELDS} | {"background": bool(values["background"])})


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _amounts(row: AuditRow) -> tuple[float, ...]:
    tokens = row.prompt_tokens or 0, row.cached_tokens or 0, row.generated_tokens or 0
    is_failed = row.ending in ("failed", "timed_out")
    return 1, int(row.ending == "refused"), int(is_failed), *tokens, row.prefill + row.decode
