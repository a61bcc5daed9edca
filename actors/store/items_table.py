"""The table of items of responses and conversations; an item that belongs to both is stored once.

Row numbers rise with time, so they give an item's position in its conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from greenroom.actors.store.connection import Connection, Row
from greenroom.actors.store.problems import MAX_RECORD, not_found, too_large_to_store, too_much_referred_to
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.stored import MAX_PAGE, ItemPage, Order, StoredItem

MAX_HISTORY = 64 << 20
"""Maximum number of characters read of a history, newest turn first, or of items by their ids. It equals the
largest request body in bytes, and no model's context is larger."""


class ItemsTable:
    """The items, by the row numbers of their response and conversation."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(
        self,
        items: Sequence[StoredItem],
        *,
        response: int | None = None,
        conversation: int | None = None,
        output: bool = False,
    ) -> None:
        """Append items, inside a transaction."""
        for item in items:
            self._connection.insert(
                "greenroom_items",
                {
                    "id": item.id,
                    "response": response,
                    "conversation": conversation,
                    "output": output,
                    "length": len(item.body),
                    "body": item.body,
                },
            )

    def of_response(self, response: int, *, output: bool) -> tuple[StoredItem, ...]:
        statement = "select id, body from greenroom_items where response = ? and output = ? order by number"
        return tuple(_item(row) for row in self._connection.rows(statement, (response, output)))

    def of_responses(self, responses: Iterable[int]) -> Iterator[Row]:
        for response in responses:
            yield from self._connection.rows(
                "select number, response, output, id, body from greenroom_items"
                " where response = ? order by number",
                (response,),
            )

    def of_conversation(self, conversation: int, first: int, last: int) -> Iterator[Row]:
        """Yield a conversation's items between two row numbers, inclusive, in order."""
        statement = (
            "select number, response, output, id, body from greenroom_items"
            " where conversation = ? and number between ? and ? order by number"
        )
        return self._connection.rows(statement, (conversation, first, last))

    def sizes_of_conversation(self, conversation: int, last: int | None) -> Iterator[Row]:
        """Yield number, response and length of a conversation's items up to `last`, newest first."""
        return self._connection.rows(
            "select number, response, length from greenroom_items"
            " where conversation = ? and number <= coalesce(?, 9223372036854775807) order by number desc",
            (conversation, last),
        )

    def last_before_response(self, conversation: int, behind: int) -> int | None:
        """Return the last row number after `behind` but before the next response's items; None for all."""
        row = self._connection.first(
            "select min(number) - 1 as last from greenroom_items"
            " where conversation = ? and number > ? and response is not null",
            (conversation, behind),
        )
        return None if row is None else row["last"]

    def list_input(self, response: int, after: str | None, limit: int, order: Order) -> ItemPage:
        """Return a page of a response's input items. Raises ProblemError: 404: `after` is not among them."""
        return self._list("response = ? and output = 0", (response,), after, limit, order)

    def list_conversation(self, conversation: int, after: str | None, limit: int, order: Order) -> ItemPage:
        return self._list("conversation = ?", (conversation,), after, limit, order)

    def find(self, conversation: int, item: str) -> StoredItem:
        """Return an item of a conversation, the last one if several have the id. Raises ProblemError: 404:
        the conversation has no such item.
        """
        row = self._connection.first(
            "select id, body from greenroom_items where conversation = ? and id = ? order by number desc",
            (conversation, item),
        )
        if row is None:
            raise ProblemError(not_found("item", item))
        return _item(row)

    def find_many(self, mentions: Mapping[str, int], owner: str, most: int = MAX_HISTORY) -> ItemPage:
        """Return the existing items with these ids, from any response or conversation of an owner.

        Args:
            mentions: Number of mentions of each id; the model reads the item that often.
            most: Maximum total length in characters, counting each mention.

        Raises:
            ProblemError (413): the items are longer.
        """
        statement = (
            "select i.id, i.body from greenroom_items i"
            " left join greenroom_conversations c on c.number = i.conversation"
            " left join greenroom_responses r on r.number = i.response"
            " where i.id = ? and (c.owner = ? or r.owner = ?) order by i.number desc"
        )
        found, size = [], 0
        for ident, times in mentions.items():
            if row := self._connection.first(statement, (ident, owner, owner)):
                found.append(_item(row))
                size += len(row["body"]) * times
            if size > most:
                raise ProblemError(too_much_referred_to(most))
        return ItemPage(tuple(found), has_more=False)

    def remove(self, conversation: int, item: str) -> None:
        """Remove an item from a conversation; its response keeps it. Raises ProblemError (404): the
        conversation has no such item.
        """
        self.find(conversation, item)
        chosen = (conversation, item)
        self._connection.write(
            "delete from greenroom_items where conversation = ? and id = ? and response is null", chosen
        )
        self._connection.write(
            "update greenroom_items set conversation = null where conversation = ? and id = ?", chosen
        )

    def drop_response(self, response: int) -> None:
        self._connection.write(
            "delete from greenroom_items where response = ? and conversation is null", (response,)
        )
        self._connection.write("update greenroom_items set response = null where response = ?", (response,))

    def drop_conversation(self, conversation: int) -> None:
        self._connection.write(
            "delete from greenroom_items where conversation = ? and response is null", (conversation,)
        )
        self._connection.write(
            "update greenroom_items set conversation = null where conversation = ?", (conversation,)
        )

    def _list(
        self, condition: str, values: tuple[Any, ...], after: str | None, limit: int, order: Order
    ) -> ItemPage:
        rows, has_more = read_page(
            self._connection, "greenroom_items", "id, length, body", condition, values, after, limit, order
        )
        return ItemPage(tuple(map(_item, rows)), has_more)


def check_size(*texts: Iterable[str]) -> int:
    """Return the total number of characters to store. Raises ProblemError (413): the text is too long."""
    size = sum(len(text) for group in texts for text in group)
    if size > MAX_RECORD:
        raise ProblemError(too_large_to_store(size))
    return size


def _item(row: Row) -> StoredItem:
    return StoredItem(row["id"], row["body"])


class SystemPromptsTable:
    """System prompts, each stored with its first response or its conversation, and deleted with that.

    An empty prompt means that the conversation began without one, and continues so.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keep(self, text: str, *, response: int, conversation: int | None) -> None:
        """Store a turn's system prompt, inside a transaction; a conversation keeps its first one."""
        if conversation is not None and self.of_conversation(conversation) is not None:
            return
        owner = {"response": response} if conversation is None else {"conversation": conversation}
        self._connection.insert("greenroom_system_prompts", {**owner, "text": text})

    def of_conversation(self, conversation: int) -> str | None:
        row = self._connection.first(
            "select text from greenroom_system_prompts where conversation = ?", (conversation,)
        )
        return None if row is None else str(row["text"])

    def of_response(self, response: int) -> str:
        row = self._connection.first(
            "select text from greenroom_system_prompts where response = ?", (response,)
        )
        assert row is not None
        return str(row["text"])


MAX_PAGE_LENGTH = 4 << 20  # Maximum length of a page in characters, unless its first entry is longer


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
        ProblemError (404): `after` is not in the list. 400: `limit` is out of range.
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
