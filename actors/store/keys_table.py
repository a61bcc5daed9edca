"""The tables of API keys (digests and rights) and of the server's secrets."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.actors.store.connection import Connection, Row
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.caller import Caller, KeyList, KeyRecord

if TYPE_CHECKING:
    from sqlite_utils.db import Table


FIND_TABLE = "select 1 from sqlite_master where type = 'table' and name = 'greenroom_keys'"
LIST_KEYS = "select * from greenroom_keys order by created, id"
_OPEN = "revoked is null"

_RIGHTS = tuple(name for name in attrs.fields_dict(Caller) if name not in ("owner", "name"))
"""Columns with the rights of a key, by the names that they have in `Caller`."""
_LISTS = {"models", "tools", "mcp"}  # Columns of JSON
_SWITCHES = {"admin", "metrics", "downloads", "local_only"}


class KeysTable:
    """The keys, by id. `connection`: connection that nothing else writes through."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._opened = uuid.uuid4().hex

    @property
    def _table(self) -> Table:
        return self._connection.table("greenroom_keys")

    def add(self, record: KeyRecord) -> KeyRecord:
        """Store a new key, after which every request needs one, and return it. Raises ProblemError: 409:
        another key has its name.
        """
        caller = record.caller
        with self._connection.transaction():
            if self._table.count_where(f"name = ? and {_OPEN}", [record.name]):
                detail = f"There is a key '{record.name}' already: revoke it, or take another name."
                raise ProblemError(Problem(409, "key_exists", detail, "name"))
            rights = {name: getattr(caller, name) for name in _RIGHTS}
            lists = {name: json.dumps(rights[name]) for name in _LISTS}
            named = {"id": record.id, "name": record.name, "digest": record.digest}
            self._table.insert({**named, "created": record.created, **rights, **lists})
        return record

    def revoke(self, key: str, now: float) -> KeyRecord:
        """Revoke a key by its id, or by the name of one that is not revoked, and return it. Raises
        ProblemError: 404.
        """
        with self._connection.transaction():
            found = next(self._table.rows_where(f"id = ? or (name = ? and {_OPEN})", [key, key]), None)
            if found is None:
                detail = f"There is no key '{key[:200]}' that opens anything."
                raise ProblemError(Problem(404, "key_not_found", detail))
            if found["revoked"] is None:
                found["revoked"] = now
                self._table.update(found["id"], {"revoked": now})
        return record_of(found)

    def switch_off(self, now: float) -> KeyList:
        """Revoke all keys at a Unix time in seconds, so that requests need none, and return them."""
        with self._connection.transaction():
            self._connection.write(f"update greenroom_keys set revoked = ? where {_OPEN}", (now,))
            self._connection.write("update greenroom_keys set is_off = 1")
        return self.list()

    def list(self, known: str | None = None) -> KeyList:
        """Return all keys, revoked ones too, unless no other process has written since the known stamp."""
        row = self._connection.first("pragma data_version")
        assert row is not None
        stamp = f"{self._opened}:{row[0]}"
        if stamp == known:
            return KeyList(stamp)
        rows = self._connection.read(LIST_KEYS)
        return KeyList(stamp, tuple(map(record_of, rows)))


def record_of(row: Row | dict[str, Any]) -> KeyRecord:
    # A database that is only read may be of a version without some of them.
    rights = {name: row[name] for name in row.keys() if name in _RIGHTS}  # noqa: SIM118
    rights |= {name: bool(rights[name]) for name in _SWITCHES & rights.keys()}
    rights |= {name: tuple(json.loads(rights[name])) for name in _LISTS & rights.keys()}
    caller = Caller(owner=row["id"], name=row["name"], **rights)
    return KeyRecord(
        row["name"], bytes(row["digest"]), caller, row["created"], row["revoked"], bool(row["is_off"])
    )


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
