"""The table of the audit, and the sums of it by key and day."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.actors.store.connection import Capacity, Connection
from greenroom.schemas.stored import AuditFilter, AuditPage, AuditRow, KeyUsage

FIELDS = tuple(field.name for field in attrs.fields(AuditRow))
SUMS = tuple(field.name for field in attrs.fields(KeyUsage))
SLICE = 1_000
"""Most rows that a transaction deletes."""
USAGE_DAYS = 400
"""Days for which usage is kept, longer than the rows."""
DAY = 86_400.0
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
    """The rows of ended requests, and the usage of each key and day.

    Args:
        days: Days after which a row is deleted.
        most: Maximum number of rows that stay after a retention pass.
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
                if self._connection.write(_INSERT, attrs.astuple(row)):
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
        """Return the usage by day and key, the latest day first.

        Args:
            since: First day in UTC, as `2026-11-24`.
            owners: Ids of keys; empty for all.
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
