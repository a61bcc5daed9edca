"""Retention: deletion of data unused for too long, in small transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from greenroom.actors.store.connection import Connection, Row
from greenroom.actors.store.conversations_table import ConversationsTable
from greenroom.actors.store.responses_table import ResponsesTable
from greenroom.schemas.protocols.store_protocol import Pruned

SLICE = 200  # Maximum number of rows that a transaction examines, and that it deletes
SLICE_LENGTH = 16 << 20  # Number of characters after which a transaction deletes no more rows
FREE_PAGES = 1000  # Number of pages returned to the disk at a time (4 MB)

_UNHELD = (
    "select number, length, (select number from greenroom_responses p where p.id = r.parent) as before"
    " from greenroom_responses r where number = ? and used < ? and boot is null"
    " and not exists (select 1 from greenroom_responses c where c.parent = r.id)"
    " and not exists (select 1 from greenroom_conversations v where v.id = r.conversation)"
)
"""Query for a response that is not unfinished, not continued by another, and in no conversation."""


@attrs.define(eq=False)
class Retention:
    """A retention pass, which deletes data last used before a cutoff.

    A response that another one continues is kept, and so are the responses of a conversation in use.

    Args:
        cutoff: Cutoff as Unix time in seconds.
        slice_rows: Maximum number of rows per transaction; changed only in tests.
    """

    _connection: Connection
    _responses: ResponsesTable
    _conversations: ConversationsTable
    _cutoff: float
    _slice_rows: int = SLICE
    pruned: Pruned = attrs.field(init=False, factory=Pruned)

    def steps(self) -> Iterator[None]:
        """Run the pass in short steps, so that messages can be answered in between."""
        yield from self._prune_responses()
        yield from self._prune_conversations()
        yield from self._prune_completions()
        while self._connection.vacuum(FREE_PAGES):
            yield
        self._connection.write_back()

    def _prune_responses(self) -> Iterator[None]:
        place = (0.0, 0)
        candidates: deque[int] = deque()
        while True:
            with self._connection.transaction():
                if not candidates:
                    rows = self._next_responses(place)
                    if not rows:
                        return
                    candidates.extend(row["number"] for row in rows)
                    place = (rows[-1]["used"], rows[-1]["number"])
                self._prune_some(candidates)
            yield

    def _next_responses(self, place: tuple[float, int]) -> list[Row]:
        return self._connection.read(
            "select used, number from greenroom_responses where used < ? and (used, number) > (?, ?)"
            " order by used, number limit ?",
            (self._cutoff, *place, self._slice_rows),
        )

    def _prune_some(self, candidates: deque[int]) -> None:
        """Delete unreferenced responses, each followed by its parent if nothing else continues that."""
        deleted = length = 0
        while candidates and deleted < self._slice_rows and length < SLICE_LENGTH:
            row = self._connection.first(_UNHELD, (candidates.popleft(), self._cutoff))
            if row is None:
                continue
            self._responses.drop(row["number"])
            deleted, length = deleted + 1, length + row["length"]
            if row["before"] is not None:
                candidates.appendleft(row["before"])
        self.pruned = attrs.evolve(self.pruned, responses=self.pruned.responses + deleted)

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
        """Return whether a conversation is still unused, and no response in it is unfinished or continued."""
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
