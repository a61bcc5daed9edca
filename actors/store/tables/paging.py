"""Pages of a list: bounded in entries and in length, continued behind an entry that is named."""

from __future__ import annotations

from typing import Any

from greenroom.actors.store.database.connection import Connection, Row
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.stored import MAX_PAGE, Order

MAX_PAGE_LENGTH = 4 << 20
"""Characters of a page, unless its first entry has more."""


def read_page(
    connection: Connection,
    table: str,
    columns: str,
    condition: str,
    values: tuple[Any, ...],
    after: str | None,
    limit: int,
    order: Order,
) -> tuple[list[Row], bool]:
    """Return the rows of a page, and whether there are more behind it.

    Args:
        columns: Must have `length`.
        condition: What all rows of the list have in common, with its `values`.
        after: Id of the row before the page.

    Raises:
        ProblemError: 404: `after` is none of the list. 400: a limit that is out of range.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(f"`limit` must be 1 to {MAX_PAGE}.", "limit")
    comparison, direction, edge = (">", "asc", "max") if order == "asc" else ("<", "desc", "min")
    if after is not None:
        # Several items can have one id: behind the furthest of them, so that no page comes twice.
        found = connection.first(
            f"select {edge}(number) from {table} where {condition} and id = ?", (*values, after)
        )
        if found is None or found[0] is None:
            raise ProblemError(
                Problem(404, "not_found", f"`after` names nothing in this list: '{after}'.", "after")
            )
        condition, values = f"{condition} and number {comparison} ?", (*values, found[0])
    statement = f"select {columns} from {table} where {condition} order by number {direction} limit ?"
    rows: list[Row] = []
    size = 0
    for row in connection.rows(statement, (*values, limit + 1)):
        size += row["length"]
        if len(rows) == limit or (rows and size > MAX_PAGE_LENGTH):
            return rows, True
        rows.append(row)
    return rows, False
