"""The table of conversations, with their metadata and items."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import attrs

from greenroom.actors.store.database.capacity import Capacity
from greenroom.actors.store.database.connection import Connection, Row
from greenroom.actors.store.database.problems import not_found
from greenroom.actors.store.tables.items_table import ItemsTable, check_size
from greenroom.actors.store.tables.paging import read_page
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import ConversationPage, ItemPage, Order, StoredConversation, StoredItem


class ConversationsTable:
    """Conversations by id and owner; an unknown one raises a ProblemError with a 404."""

    def __init__(self, connection: Connection, items: ItemsTable, capacity: Capacity) -> None:
        self._connection = connection
        self._items = items
        self._capacity = capacity

    def create(self, conversation: StoredConversation, items: tuple[StoredItem, ...] = ()) -> None:
        """Add a conversation with its first items."""
        self._capacity.check(conversation.owner, sum(len(item.body) for item in items))
        metadata = json.dumps(dict(conversation.metadata))
        check_size([metadata], (item.body for item in items))
        with self._connection.transaction():
            added = self._connection.table("greenroom_conversations").insert(
                {
                    "id": conversation.id,
                    "owner": conversation.owner,
                    "created": conversation.created,
                    "used": time.time(),
                    "metadata": metadata,
                }
            )
            self._items.append(items, conversation=added.last_rowid)

    def find(self, name: str, owner: str) -> StoredConversation:
        """Return a conversation, and whether an answer is under way in it."""
        latest = self._connection.first(
            "select id, status from greenroom_responses where conversation = ? and owner = ?"
            " order by number desc limit 1",
            (name, owner),
        )
        found = _conversation(self._row(name, owner))
        return found if latest is None else attrs.evolve(found, latest=(latest["id"], latest["status"]))

    def number(self, name: str, owner: str) -> int:
        """Return a conversation's row number, which its items refer to."""
        return int(self._row(name, owner)["number"])

    def touch(self, number: int) -> None:
        """Record that a conversation is used now, inside a transaction."""
        self._connection.write(
            "update greenroom_conversations set used = ? where number = ?", (time.time(), number)
        )

    def update(self, name: str, owner: str, metadata: Mapping[str, str]) -> StoredConversation:
        """Replace a conversation's metadata."""
        text = json.dumps(dict(metadata))
        check_size([text])
        with self._connection.transaction():
            number = self.number(name, owner)
            changed = {"metadata": text, "used": time.time()}
            self._connection.table("greenroom_conversations").update(number, changed)
            return self.find(name, owner)

    def drop(self, number: int) -> None:
        """Delete a conversation, and its items that belong to no response, inside a transaction."""
        self._items.drop_conversation(number)
        self._connection.write("delete from greenroom_conversations where number = ?", (number,))

    def add_items(self, name: str, owner: str, items: tuple[StoredItem, ...]) -> None:
        """Append items to a conversation."""
        self._capacity.check(owner, sum(len(item.body) for item in items))
        check_size(item.body for item in items)
        with self._connection.transaction():
            number = self.number(name, owner)
            self._items.append(items, conversation=number)
            self.touch(number)

    def list_items(
        self, name: str, owner: str, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> ItemPage:
        """Return a page of a conversation's items, or raise a 404 if `after` is not among them."""
        return self._items.list_conversation(self.number(name, owner), after, limit, order)

    def find_item(self, name: str, owner: str, item: str) -> StoredItem:
        return self._items.find(self.number(name, owner), item)

    def remove_item(self, name: str, owner: str, item: str) -> StoredConversation:
        """Remove an item from a conversation, and return the conversation."""
        with self._connection.transaction():
            number = self.number(name, owner)
            self._items.remove(number, item)
            self.touch(number)
            return self.find(name, owner)

    def list(
        self, owner: str, after: str | None = None, limit: int = 20, query: str = ""
    ) -> ConversationPage:
        """Return a page of an owner's conversations, the newest first.

        Args:
            after: Id of the conversation that precedes the page, a 404 if unknown; None for the beginning.
            query: Text that `metadata.title` must contain, in any case of its ASCII letters; empty for all.
        """
        condition, values = "owner = ?", [owner]
        if query:
            condition += " and instr(lower(json_extract(metadata, '$.title')), lower(?)) > 0"
            values.append(query)
        rows, has_more = read_page(
            self._connection,
            "greenroom_conversations",
            "id, owner, created, metadata, length(metadata) as length",
            condition,
            tuple(values),
            after,
            limit,
            "desc",
        )
        return ConversationPage(tuple(map(_conversation, rows)), has_more)

    def _row(self, name: str, owner: str) -> Row:
        row = self._connection.first(
            "select number, id, owner, created, metadata from greenroom_conversations"
            " where id = ? and owner = ?",
            (name, owner),
        )
        if row is None:
            raise ProblemError(not_found("conversation", name, "conversation"))
        return row


def _conversation(row: Row) -> StoredConversation:
    return StoredConversation(row["id"], row["owner"], row["created"], json.loads(row["metadata"]))
