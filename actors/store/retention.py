"""What has not been used for too long, deleted in small transactions."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from greenroom.actors.store.connection import Connection, Row
from greenroom.actors.store.conversations_table import ConversationsTable
from greenroom.actors.store.responses_table import ResponsesTable
from greenroom.schemas.store_protocol import Pruned

SLICE = 200
"""Rows that a transaction looks at, and those that it deletes, at most."""
SLICE_LENGTH = 16 << 20
"""Characters after which it deletes no more."""
FREE_PAGES = 1000
"""Pages that are given back to the disk at a time: 4 MB."""

_RESPONSE = (
    "select number, id, parent, used, length, boot is null"
    " and not exists (select 1 from greenroom_responses c where c.parent = r.id)"
    " and not exists (select 1 from greenroom_conversations v where v.id = r.conversation) as free"
    " from greenroom_responses r"
)


class Retention:
    """Deletes what was last used before a moment.

    A response that another one continues stays, and so does one of a conversation that is in use.

    Args:
        cutoff: Unix time in seconds.
        slice_rows: Other than the default only in tests.
    """

    def __init__(
        self,
        connection: Connection,
        responses: ResponsesTable,
        conversations: ConversationsTable,
        cutoff: float,
        slice_rows: int = SLICE,
    ) -> None:
        self.pruned = Pruned()
        self._connection = connection
        self._responses = responses
        self._conversations = conversations
        self._cutoff = cutoff
        self._slice_rows = slice_rows

    def steps(self) -> Iterator[None]:
        """Do it step by step; each is short, and what others ask can be done between two of them."""
        yield from self._prune_responses()
        yield from self._prune_conversations()
        yield from self._prune_completions()
        while self._connection.vacuum(FREE_PAGES):
            yield

    def _prune_responses(self) -> Iterator[None]:
        used, number = 0.0, 0
        while True:
            rows = self._connection.read(
                f"{_RESPONSE} where used < ? and (used, number) > (?, ?) order by used, number limit ?",
                (self._cutoff, used, number, self._slice_rows),
            )
            if not rows:
                return
            for row in rows:
                used, number = row["used"], row["number"]
                if row["free"]:
                    yield from self._prune_chain(number)
            yield

    def _prune_chain(self, number: int | None) -> Iterator[None]:
        """Delete a response and those before it that nothing else continues."""
        while number is not None:
            with self._connection.transaction():
                number = self._prune_links(number)
            yield

    def _prune_links(self, number: int) -> int | None:
        """Delete a few of them; return the number of the next one, if there is one."""
        count = length = 0
        row = self._connection.first(f"{_RESPONSE} where number = ?", (number,))
        while row is not None and row["free"] and row["used"] < self._cutoff:
            if count == self._slice_rows or length > SLICE_LENGTH:
                return int(row["number"])
            self._responses.drop(row["number"])
            count, length = count + 1, length + row["length"]
            self.pruned = attrs.evolve(self.pruned, responses=self.pruned.responses + 1)
            row = self._connection.first(f"{_RESPONSE} where id = ?", (row["parent"],))
        return None

    def _prune_conversations(self) -> Iterator[None]:
        number = 0
        while (row := self._next_conversation(number)) is not None:
            number = row["number"]
            with self._connection.transaction():
                if self._is_free(row):
                    self._prune_conversation(row)
            yield

    def _next_conversation(self, number: int) -> Row | None:
        return self._connection.first(
            "select number, id from greenroom_conversations where used < ? and number > ? order by number",
            (self._cutoff, number),
        )

    def _is_free(self, conversation: Row) -> bool:
        """Return whether it is unused still, and no response in it is unfinished or continued apart."""
        return (
            self._connection.first(
                "select 1 from greenroom_responses r where conversation = ? and (boot is not null"
                " or exists (select 1 from greenroom_responses c where c.parent = r.id))",
                (conversation["id"],),
            )
            is None
            and self._connection.first(
                "select 1 from greenroom_conversations where number = ? and used < ?",
                (conversation["number"], self._cutoff),
            )
            is not None
        )

    def _prune_conversation(self, conversation: Row) -> None:
        responses = self._connection.read(
            "select number from greenroom_responses where conversation = ?", (conversation["id"],)
        )
        self._conversations.drop(conversation["number"])
        for response in responses:
            self._responses.drop(response["number"])
        self.pruned = attrs.evolve(
            self.pruned,
            conversations=self.pruned.conversations + 1,
            responses=self.pruned.responses + len(responses),
        )

    def _prune_completions(self) -> Iterator[None]:
        while True:
            with self._connection.transaction():
                count = self._connection.write(
                    "delete from greenroom_completions where number in"
                    " (select number from greenroom_completions where used < ? limit ?)",
                    (self._cutoff, self._slice_rows),
                )
            if not count:
                return
            self.pruned = attrs.evolve(self.pruned, completions=self.pruned.completions + count)
            yield
