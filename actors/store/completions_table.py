"""The table of stored chat completions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from greenroom.actors.store.connection import Capacity, Connection, Row
from greenroom.actors.store.items_table import check_size, read_page
from greenroom.actors.store.problems import not_found
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import CompletionPage, Order, StoredCompletion

NO_METADATA: Mapping[str, str] = {}
_COLUMNS = "id, owner, created, model, length, metadata, body, messages"


class CompletionsTable:
    """Stored completions by id and owner; an unknown one raises a ProblemError with a 404."""

    def __init__(self, connection: Connection, capacity: Capacity) -> None:
        self._connection = connection
        self._capacity = capacity

    def save(self, completion: StoredCompletion) -> None:
        self._capacity.check(completion.owner, len(completion.body) + len(completion.messages))
        metadata = json.dumps(dict(completion.metadata))
        size = check_size([metadata, completion.messages, completion.body])
        with self._connection.transaction():
            self._connection.table("greenroom_completions").insert(
                {
                    "id": completion.id,
                    "owner": completion.owner,
                    "created": completion.created,
                    "used": time.time(),
                    "length": size,
                    "model": completion.model,
                    "metadata": metadata,
                    "body": completion.body,
                    "messages": completion.messages,
                }
            )

    def find(self, name: str, owner: str) -> StoredCompletion:
        row = self._connection.first(
            f"select {_COLUMNS} from greenroom_completions where id = ? and owner = ?", (name, owner)
        )
        if row is None:
            raise ProblemError(not_found("chat completion", name))
        return _completion(row)

    def list(
        self,
        owner: str,
        after: str | None = None,
        limit: int = 20,
        order: Order = "asc",
        model: str | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> CompletionPage:
        """Return a page of an owner's completions, or raise a 404 if `after` is not among them.

        Args:
            model: Model filter; None for every model.
            metadata: Metadata entries that a completion must have.
        """
        condition, values = "owner = ?", [owner]
        if model is not None:
            condition += " and model = ?"
            values.append(model)
        for key, value in metadata.items():
            condition += " and exists (select 1 from json_each(metadata) where key = ? and value = ?)"
            values += [key, value]
        chosen: tuple[Any, ...] = tuple(values)
        rows, has_more = read_page(
            self._connection,
            "greenroom_completions",
            _COLUMNS,
            condition,
            chosen,
            after,
            limit,
            order,
        )
        return CompletionPage(tuple(map(_completion, rows)), has_more)

    def update(self, name: str, owner: str, metadata: Mapping[str, str]) -> StoredCompletion:
        text = json.dumps(dict(metadata))
        check_size([text])
        with self._connection.transaction():
            if (added := len(text) - len(json.dumps(dict(self.find(name, owner).metadata)))) > 0:
                self._capacity.check(owner, added)
            self._connection.write(
                "update greenroom_completions set metadata = ?, used = ? where id = ? and owner = ?",
                (text, time.time(), name, owner),
            )
            return self.find(name, owner)

    def delete(self, name: str, owner: str) -> None:
        with self._connection.transaction():
            if not self._connection.write(
                "delete from greenroom_completions where id = ? and owner = ?", (name, owner)
            ):
                raise ProblemError(not_found("chat completion", name))


def _completion(row: Row) -> StoredCompletion:
    return StoredCompletion(
        row["id"],
        row["owner"],
        row["created"],
        row["model"],
        row["messages"],
        row["body"],
        json.loads(row["metadata"]),
    )
