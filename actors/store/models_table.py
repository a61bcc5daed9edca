"""The tables of what is known about models: probed capabilities, and measured working space."""

from __future__ import annotations

from typing import Any, get_args

import attrs

from greenroom.actors.store.connection import Connection, Row
from greenroom.schemas.models.capabilities import Family, ModelType, ProbedCapabilities, WorkingSpace

TABLE = "greenroom_capabilities"
FIELDS = tuple(field.name for field in attrs.fields(ProbedCapabilities))


class CapabilitiesTable:
    """The capability records that probes have made; a newer probe of a model replaces its record."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, record: ProbedCapabilities) -> None:
        with self._connection.transaction():
            self._connection.table(TABLE).upsert(attrs.asdict(record), pk="model_id")

    def list(self) -> tuple[ProbedCapabilities, ...]:
        rows = self._connection.read(f"select {', '.join(FIELDS)} from {TABLE} order by model_id")
        return tuple(filter(None, map(record_of, rows)))


def record_of(row: Row) -> ProbedCapabilities | None:
    """Return the record in a row; None if it is of a type or family that this version does not know."""
    if row["model_type"] not in get_args(ModelType) or row["model_family"] not in get_args(Family):
        return None
    values: dict[str, Any] = {name: row[name] for name in FIELDS}
    for name in _SWITCHES:
        values[name] = None if values[name] is None else bool(values[name])
    return ProbedCapabilities(**values)


_SWITCHES = tuple(name for name in FIELDS if name.startswith(("supports_", "is_")))
"""The fields that are true, false or unknown."""


WORKING_SPACE_TABLE = "greenroom_working_space"
WORKING_SPACE_FIELDS = tuple(field.name for field in attrs.fields(WorkingSpace))


class WorkingSpaceTable:
    """The last measurement of each model."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, measured: WorkingSpace) -> None:
        with self._connection.transaction():
            self._connection.table(WORKING_SPACE_TABLE).upsert(attrs.asdict(measured), pk="model_id")


def working_space_of(row: Row) -> WorkingSpace | None:
    model, nbytes, stamp = (row[name] for name in WORKING_SPACE_FIELDS)
    if not (isinstance(model, str) and isinstance(nbytes, int) and isinstance(stamp, str) and nbytes >= 0):
        return None
    return WorkingSpace(model, nbytes, stamp)
