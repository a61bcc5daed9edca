"""The table of copies of models: a row for each."""

from __future__ import annotations

import json

from greenroom.actors.store.database.connection import Connection, Row
from greenroom.schemas.models.model_copy import ModelCopy
from greenroom.schemas.settings.model_settings import given_values
from greenroom.schemas.settings.profiles import Profile

TABLE = "greenroom_copies"
FIELDS = ("name", "profile")


class CopiesTable:
    """The copies, by name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, copy: ModelCopy) -> None:
        """Store a copy in place of an earlier one of its name."""
        row = {"name": copy.name, "profile": json.dumps(given_values(copy.profile))}
        with self._connection.transaction():
            self._connection.table(TABLE).upsert(row, pk="name")

    def delete(self, name: str) -> None:
        """Delete a copy, if there is one."""
        with self._connection.transaction():
            self._connection.table(TABLE).delete_where("name = ?", [name])


def copy_of(row: Row) -> ModelCopy | None:
    """Return the copy in a row; None if it is of a form that this version does not know."""
    try:
        return ModelCopy(str(row["name"]), Profile(**json.loads(row["profile"])))
    except (ValueError, TypeError):
        return None
