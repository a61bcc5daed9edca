"""The table of responses, each a row with its items."""

from __future__ import annotations

import json
import time

import attrs

from greenroom.actors.store.connection import Capacity, Connection, Row
from greenroom.actors.store.conversations_table import ConversationsTable
from greenroom.actors.store.items_table import ItemsTable, SystemPromptsTable, check_size
from greenroom.actors.store.problems import not_found, previous_not_found
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import UNFINISHED, ItemPage, Order, StoredResponse

_ERROR = json.dumps(
    {"code": "server_error", "message": "The server stopped before the response was finished."}
)
_APART = ("input", "output", "system_prompt")  # These have tables of their own
_COLUMNS = tuple(name for name in attrs.fields_dict(StoredResponse) if name not in _APART)


@attrs.frozen(eq=False)
class ResponsesTable:
    """Responses by id and owner; an unknown one raises a ProblemError with a 404. `boot`: unique id of this
    server process, by which its running responses are told from those that an earlier one left.
    """

    _connection: Connection
    _items: ItemsTable
    _conversations: ConversationsTable
    _capacity: Capacity
    _boot: str

    def begin(self, response: StoredResponse) -> None:
        """Add an unfinished response, in a transaction, without adding its items to its conversation.

        If its server dies, it is found as `failed`.
        """
        self._capacity.check(response.owner, _length(response))
        size = _check_size(response)
        with self._connection.transaction():
            self._check_ancestry(response)
            number = self._insert(response, size, self._boot)
            self._items.append(response.input, response=number)

    def commit(self, response: StoredResponse, begun: bool = False) -> None:
        """Add a finished response, or replace its unfinished row, in a transaction.

        Its items are appended to its conversation unless it has failed, since a retry would append them
        again.

        Args:
            begun: True if `begin` has added an unfinished row, which then finds room in any case.

        Raises:
            ProblemError: 404: its parent or conversation is gone, or a client has deleted the unfinished row.
        """
        if not begun:
            self._capacity.check(response.owner, _length(response))
        size = _check_size(response)
        with self._connection.transaction():
            conversation = self._check_ancestry(response)
            if begun:
                self.drop(int(self._row(response.id, response.owner, "number")["number"]))
            number = self._insert(response, size, None)
            joined = None if response.status == "failed" else conversation
            self._items.append(response.input, response=number, conversation=joined)
            self._items.append(response.output, response=number, conversation=joined, output=True)
            if joined is not None:
                self._conversations.touch(joined)
            if response.system_prompt is not None and joined == conversation:
                prompts = SystemPromptsTable(self._connection)
                prompts.keep(response.system_prompt, response=number, conversation=conversation)
            self._connection.write(
                "update greenroom_responses set last_item ="
                " (select coalesce(max(number), 0) from greenroom_items) where number = ?",
                (number,),
            )

    def find(self, name: str, owner: str) -> StoredResponse:
        row = self._row(name, owner, f"number, {', '.join(_COLUMNS)}")
        number, values = row["number"], {each: row[each] for each in _COLUMNS}
        values["background"] = bool(row["background"])
        return StoredResponse(
            **values,
            input=self._items.of_response(number, output=False),
            output=self._items.of_response(number, output=True),
        )

    def delete(self, name: str, owner: str) -> None:
        """Delete a response, in a transaction; a conversation keeps its items."""
        with self._connection.transaction():
            self.drop(int(self._row(name, owner, "number")["number"]))

    def fail_unfinished(self, *, own: bool = False) -> int:
        """Fail the responses that a stopped server left unfinished, and return their number. `own`: True to
        fail those of this server too, which ends.
        """
        left, boot = "boot is not null and boot != ?", "" if own else self._boot
        found = f"select 1 from greenroom_responses where {left} limit 1"
        if self._connection.first(found, (boot,)) is None:
            return 0  # without a write, which would wait for a hung thread's transaction
        with self._connection.transaction():
            # This is the only change ever made to an answer; it would otherwise seem to be still in progress.
            return self._connection.write(
                "update greenroom_responses set status = 'failed', completed = ?, boot = null,"
                " body = json_set(body, '$.status', 'failed', '$.error', json(?))"
                f" where {left} and status in ({', '.join('?' * len(UNFINISHED))})",
                (time.time(), _ERROR, boot, *UNFINISHED),
            )

    def delete_conversation(self, name: str, owner: str, *, responses: bool = False) -> None:
        """Delete a conversation, in a transaction; also its ended responses, if these are to go too."""
        ended = "select number from greenroom_responses where conversation = ? and owner = ? and boot is null"
        with self._connection.transaction():
            self._conversations.drop(self._conversations.number(name, owner))
            for row in self._connection.read(ended, (name, owner)) if responses else ():
                self.drop(int(row["number"]))

    def drop(self, number: int) -> None:
        """Delete a response in the same way, inside a transaction."""
        self._items.drop_response(number)
        self._connection.write("delete from greenroom_responses where number = ?", (number,))

    def list_input(
        self, name: str, owner: str, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> ItemPage:
        """Return a page of a response's input items, or raise a 404 if `after` is not among them."""
        number = self._row(name, owner, "number")["number"]
        return self._items.list_input(number, after, limit, order)

    def _check_ancestry(self, response: StoredResponse) -> int | None:
        """Return the row number of a response's conversation, if it has one. Raises ProblemError (404): the
        conversation or the parent is gone.
        """
        if response.parent is not None:
            try:
                self._row(response.parent, response.owner, "number")
            except ProblemError as error:
                raise ProblemError(previous_not_found(response.parent)) from error
        if response.conversation is not None:
            return self._conversations.number(response.conversation, response.owner)
        return None

    def _insert(self, response: StoredResponse, size: int, boot: str | None) -> int:
        assert (boot is not None) == (response.status in UNFINISHED)
        values = {each: getattr(response, each) for each in _COLUMNS}
        values |= {"boot": boot, "used": time.time(), "length": size}
        return self._connection.insert("greenroom_responses", values)

    def _row(self, name: str, owner: str, columns: str) -> Row:
        row = self._connection.first(
            f"select {columns} from greenroom_responses where id = ? and owner = ?", (name, owner)
        )
        if row is None:
            raise ProblemError(not_found("response", name))
        return row


def _length(response: StoredResponse) -> int:
    items = sum(len(item.body) for item in (*response.input, *response.output))
    return items + len(response.body) + len(response.raw) + len(response.events or "")


def _check_size(response: StoredResponse) -> int:
    items = [item.body for item in (*response.input, *response.output)]
    check_size(items, [response.body, response.raw, response.events or ""])
    return check_size(items)
