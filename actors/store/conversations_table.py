"""The table of conversations, with their metadata and items, and the history that a response continues."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from greenroom.actors.store.connection import Capacity, Connection, Row
from greenroom.actors.store.items_table import (
    MAX_HISTORY,
    ItemsTable,
    SystemPromptsTable,
    check_size,
    read_page,
)
from greenroom.actors.store.problems import not_found, other_conversation, previous_not_found, unfinished
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import (
    UNFINISHED,
    ConversationPage,
    ItemPage,
    Order,
    StoredConversation,
    StoredItem,
    StoredTurn,
    Turns,
)


class ConversationsTable:
    """Conversations by id and owner; an unknown one raises a ProblemError with a 404."""

    def __init__(self, connection: Connection, items: ItemsTable, capacity: Capacity) -> None:
        self._connection = connection
        self._items = items
        self._capacity = capacity

    def create(self, conversation: StoredConversation, items: tuple[StoredItem, ...] = ()) -> None:
        metadata = json.dumps(dict(conversation.metadata))
        self._capacity.check(conversation.owner, len(metadata) + sum(len(item.body) for item in items))
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
        return int(self._row(name, owner)["number"])

    def touch(self, number: int) -> None:
        """Record that a conversation is used now, inside a transaction."""
        self._connection.write(
            "update greenroom_conversations set used = ? where number = ?", (time.time(), number)
        )

    def update(self, name: str, owner: str, metadata: Mapping[str, str]) -> StoredConversation:
        text = json.dumps(dict(metadata))
        check_size([text])
        with self._connection.transaction():
            row = self._row(name, owner)
            if (added := len(text) - len(row["metadata"])) > 0:
                self._capacity.check(owner, added)
            changed = {"metadata": text, "used": time.time()}
            self._connection.table("greenroom_conversations").update(row["number"], changed)
            return self.find(name, owner)

    def drop(self, number: int) -> None:
        """Delete a conversation, and its items that belong to no response, inside a transaction."""
        self._items.drop_conversation(number)
        self._connection.write("delete from greenroom_conversations where number = ?", (number,))

    def add_items(self, name: str, owner: str, items: tuple[StoredItem, ...]) -> None:
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


MAX_CHAIN = 100_000  # Maximum number of ancestors that are followed

_CHAIN = f"""
with recursive chain as (
    select 0 as depth, number, id, parent, conversation, status, last_item, length
        from greenroom_responses where id = :id and owner = :owner
    union all
    select depth + 1, r.number, r.id, r.parent, r.conversation, r.status, r.last_item, r.length
        from chain join greenroom_responses r on r.id = chain.parent and r.owner = :owner
        where chain.conversation is null
    limit {MAX_CHAIN}
)
select chain.*, p.response is not null as keeps_prompt
    from chain left join greenroom_system_prompts p on p.response = chain.number
    order by depth
"""


class Histories:
    """The reader of histories; an unknown object raises a ProblemError with a 404. `max_length`: maximum
    length in characters; older turns are counted and omitted, the newest is always read.
    """

    def __init__(
        self,
        connection: Connection,
        items: ItemsTable,
        conversations: ConversationsTable,
        max_length: int = MAX_HISTORY,
    ) -> None:
        self._connection = connection
        self._items = items
        self._conversations = conversations
        self._prompts = SystemPromptsTable(connection)
        self._max_length = max_length

    def before(self, owner: str, response: str | None = None, conversation: str | None = None) -> Turns:
        """Return the history before a new turn, of a response to continue or of a conversation.

        A response in a conversation can be continued outside of it; its history is then the conversation's
        up to that response.

        Args:
            response: Id of the response whose turn comes last, followed by items added to `conversation` on
                their own.
            conversation: Id of the conversation, read to its end if there is no `response`.
        """
        if response is not None and conversation is not None:
            return self.of_turn(response, conversation, owner)
        if conversation is not None:
            return self.of_conversation(conversation, owner)
        return Turns(()) if response is None else self.of_response(response, owner)

    def of_conversation(self, name: str, owner: str) -> Turns:
        return self._read_conversation(self._conversations.number(name, owner), None, self._max_length, 1)

    def of_response(self, name: str, owner: str) -> Turns:
        """Return the turns up to and including a response. Raises ProblemError: 404: the response, one of its
        ancestors, or their conversation is gone. 409: the response is not finished.
        """
        chain = self._connection.read(_CHAIN, {"id": name, "owner": owner})
        if not chain:
            raise ProblemError(previous_not_found(name))
        if chain[0]["status"] in UNFINISHED:
            raise ProblemError(unfinished(name))
        head = chain[-1]
        if head["conversation"] is None and head["parent"] is not None and len(chain) < MAX_CHAIN:
            raise ProblemError(previous_not_found(head["parent"]))
        # The conversation includes the first response's turn as well, unless that failed.
        in_conversation = head["conversation"] is not None and head["status"] != "failed"
        apart = chain[:-1] if in_conversation else chain
        kept = _fitting([row["length"] for row in apart], self._max_length, 1)
        before = Turns(())
        if head["conversation"] is not None:
            left = self._max_length - sum(row["length"] for row in apart)
            conversation = self._conversations.number(head["conversation"], owner)
            at_least = 0 if apart else 1
            before = self._read_conversation(conversation, head["last_item"], left, at_least)
        rows = self._items.of_responses([row["number"] for row in reversed(apart[:kept])])
        keeper = next((row["number"] for row in apart if row["keeps_prompt"]), None)
        prompt = before.system_prompt if keeper is None else self._prompts.of_response(keeper)
        return Turns((*before.turns, *_turns(rows)), before.left_out + len(apart) - kept, prompt)

    def of_turn(self, name: str, conversation: str, owner: str) -> Turns:
        """Return the turns of a conversation up to and including a response.

        Items that were added separately between that response and the next one are included.

        Raises:
            ProblemError (404): the response or the conversation is gone. 400: the response is not a turn of
                the conversation. 409: the response is not finished.
        """
        number = self._conversations.number(conversation, owner)
        turn = self._connection.first(
            "select conversation, status, last_item from greenroom_responses where id = ? and owner = ?",
            (name, owner),
        )
        if turn is None:
            raise ProblemError(previous_not_found(name))
        if turn["conversation"] != conversation:
            raise ProblemError(other_conversation(name, conversation))
        if turn["status"] in UNFINISHED:
            raise ProblemError(unfinished(name))
        last = self._items.last_before_response(number, turn["last_item"])
        return self._read_conversation(number, last, self._max_length, 1)

    def _read_conversation(self, conversation: int, last: int | None, most: int, at_least: int) -> Turns:
        """Return the newest turns of a conversation, up to an item.

        Args:
            last: Number of the item; None for the last one.
            most: Maximum length of the turns in characters.
            at_least: Minimum number of turns, whatever their length.
        """
        sizes = self._items.sizes_of_conversation(conversation, last)
        turns = [list(group) for _, group in groupby(sizes, key=_turn)]
        kept = _fitting([sum(row["length"] for row in turn) for turn in turns], most, at_least)
        prompt = self._prompts.of_conversation(conversation)
        if not kept:
            return Turns((), len(turns), prompt)
        first, newest = turns[kept - 1][-1]["number"], turns[0][0]["number"]
        rows = self._items.of_conversation(conversation, first, newest)
        return Turns(tuple(_turns(rows)), len(turns) - kept, prompt)


def _turns(rows: Iterable[Row]) -> Iterator[StoredTurn]:
    for _, group in groupby(rows, key=_turn):
        yield StoredTurn(tuple(StoredItem(row["id"], row["body"]) for row in group))


def _turn(row: Row) -> tuple[int | None, int | None]:
    """Return a key that a turn's items share; an item added separately is a turn of its own."""
    return (row["response"], None) if row["response"] is not None else (None, row["number"])


def _fitting(sizes: Sequence[int], most: int, at_least: int) -> int:
    """Return the number of leading sizes whose sum fits into `most`, but at least `at_least`."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > most and count >= at_least:
            return count
    return len(sizes)
