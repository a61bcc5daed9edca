"""Pages of a list, limited in entries and in length, that start after a given entry."""

from __future__ import annotations

from typing import Any

from greenroom.actors.store.database.connection import Connection, Row
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.stored import MAX_PAGE, Order

MAX_PAGE_LENGTH = 4 << 20
"""Maximum length of a page in characters, unless its first entry is longer."""


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
    """Return the rows of a page, and whether more follow.

    Args:
        columns: Columns to read, including `length`.
        condition: SQL condition for the rows of the list, with its `values`.
        after: Id of the row before the page; None for the first page.

    Raises:
        ProblemError: 404: `after` is not in the list. 400: `limit` is out of range.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(f"`limit` must be 1 to {MAX_PAGE}.", "limit")
    comparison, direction, edge = (">", "asc", "max") if order == "asc" else ("<", "desc", "min")
    if after is not None:
        # Several items can have the same id; the page starts after the furthest, so that no page is repeated.
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
