"""Pagination parameters of list endpoints."""

from __future__ import annotations

import attrs
from werkzeug.datastructures import MultiDict

from greenroom.schemas.problems import invalid
from greenroom.schemas.stored import MAX_PAGE, Order

DEFAULT_PAGE = 20
"""Entries of a page if the client sets no limit."""


@attrs.frozen
class ListQuery:
    """Position, size and order of a page.

    Args:
        after: Id of the entry that precedes the page, in `order`; None for the beginning.
        limit: Maximum number of entries.
        order: Order by time: oldest or newest first.
    """

    after: str | None = None
    limit: int = DEFAULT_PAGE
    order: Order = "desc"


def parse_list_query(args: MultiDict[str, str], order: Order) -> ListQuery:
    """Parse the pagination parameters of a URL's query.

    Args:
        order: Default order.

    Raises:
        ProblemError: 400 that names the parameter.
    """
    return ListQuery(args.get("after") or None, _limit(args.get("limit")), _order(args.get("order"), order))


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE
    # `int` would also accept signs and the digits of other alphabets.
    limit = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(f"`limit` must be a number from 1 to {MAX_PAGE}.", "limit")
    return limit


def _order(text: str | None, default: Order) -> Order:
    match text:
        case None:
            return default
        case "asc" | "desc":
            return text
    raise invalid("`order` must be 'asc' or 'desc'.", "order")
