"""Histories before a new turn: the ancestors of a response, or a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from greenroom.actors.store.database.connection import Connection, Row
from greenroom.actors.store.database.problems import other_conversation, previous_not_found, unfinished
from greenroom.actors.store.tables.conversations_table import ConversationsTable
from greenroom.actors.store.tables.items_table import MAX_HISTORY, ItemsTable
from greenroom.actors.store.tables.system_prompts_table import SystemPromptsTable
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import UNFINISHED, StoredItem, StoredTurn, Turns

MAX_CHAIN = 100_000
"""Maximum number of ancestors that are followed."""

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
    """The reader of histories; an unknown object raises a ProblemError with a 404.

    Args:
        max_length: Maximum length in characters; older turns are counted and omitted, the newest is always
            read.
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
        """Return the turns up to and including a response.

        Raises:
            ProblemError: 404: the response, one of its ancestors, or their conversation is gone. 409: the
                response is not finished.
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
            ProblemError: 404: the response or the conversation is gone. 400: the response is not a turn of
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
