"""Chat completions that are kept: what is stored of one, and what clients see of it later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.http.answering.collected_answer import CollectedChoice
from greenroom.http.answering.json_encoding import json_bytes
from greenroom.http.answering.list_query import ListQuery
from greenroom.http.openai.chat_formatter import ChatFormatter
from greenroom.schemas.completion_store_protocol import SaveCompletion
from greenroom.schemas.events import Failed
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.problems import Problem, draining, invalid
from greenroom.schemas.store_protocol import Committed, StoreMessage
from greenroom.schemas.stored import StoredCompletion


class CompletionRecorder:
    """Stores one chat's answer when it is complete.

    Args:
        formatter: Of the answer; what it makes of the whole is what is stored.
        messages: The request's, JSON text.
        metadata: The client's.
    """

    def __init__(
        self,
        store: Ref[StoreMessage],
        owner: str,
        formatter: ChatFormatter,
        messages: str,
        metadata: dict[str, str],
    ) -> None:
        self._store = store
        self._owner = owner
        self._formatter = formatter
        self._messages = messages
        self._metadata = metadata

    async def record(self, model: str, choices: Sequence[CollectedChoice]) -> Problem | None:
        """Store the answer, and return why that failed, if so."""
        completion = StoredCompletion(
            id=self._formatter.answer_id,
            owner=self._owner,
            created=self._formatter.created,
            model=model,
            messages=self._messages,
            body=json_bytes(self._formatter.whole(model, choices)).decode(),
            metadata=self._metadata,
        )
        try:
            answer = await self._store.ask(SaveCompletion(completion), Committed)
        except ActorStopped:
            return draining()
        return answer.problem if isinstance(answer, Failed) else None


def completion_document(completion: StoredCompletion) -> bytes:
    """Return a stored completion as JSON, with its metadata."""
    return b'%b,"metadata":%b}' % (
        completion.body.encode().removesuffix(b"}"),
        json_bytes(dict(completion.metadata)),
    )


def completion_messages(completion: StoredCompletion, query: ListQuery) -> JsonObject:
    """Return a page of the messages that a completion answered.

    Raises:
        ProblemError: 400 if the page shall begin behind a message that is none of them.
    """
    messages = [
        _message(message, f"{completion.id}-{index}")
        for index, message in enumerate(json.loads(completion.messages))
    ]
    if query.order == "desc":
        messages.reverse()
    if query.after is not None:
        ids = [message["id"] for message in messages]
        if query.after not in ids:
            raise invalid(f"`after` names no message of this completion: {query.after!r}.", "after")
        messages = messages[ids.index(query.after) + 1 :]
    page = messages[: query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(messages) > len(page),
    }


def _message(message: dict[str, Any], ident: str) -> dict[str, Any]:
    """Return a message as it was sent, with an id, and with its text where that came in parts."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    if parts is not None:
        content = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    return {**message, "id": ident, "content": content, "content_parts": parts}
