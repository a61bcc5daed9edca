"""The table of measured working space: a row for each model."""

from __future__ import annotations

import attrs

from greenroom.actors.store.database.connection import Connection, Row
from greenroom.schemas.models.working_space import WorkingSpace

TABLE = "greenroom_working_space"
FIELDS = tuple(field.name for field in attrs.fields(WorkingSpace))


class WorkingSpaceTable:
    """The last measurement of each model."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, measured: WorkingSpace) -> None:
        """Store a measurement in place of the model's earlier one."""
        with self._connection.transaction():
            self._connection.table(TABLE).upsert(attrs.asdict(measured), pk="model_id")


def working_space_of(row: Row) -> WorkingSpace | None:
    """Return the measurement in a row; None if it is none."""
    model, nbytes, stamp = (row[name] for name in FIELDS)
    if not (isinstance(model, str) and isinstance(nbytes, int) and isinstance(stamp, str) and nbytes >= 0):
        return None
    return WorkingSpace(model, nbytes, stamp)
