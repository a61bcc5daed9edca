"""Stored chat completions: storage, and format of later responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.answers import StoreMessage, ask_store_or_failed
from greenroom.actors.store.database.problems import storing_disabled
from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.answering.requests.list_query import ListQuery
from greenroom.http.answering.requests.metadata import parse_metadata
from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.openai.chat.chat_formatter import ChatFormatter
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.openai.chat import ChatRequest
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.stored import StoredCompletion


@attrs.frozen
class RequestToStore:
    """Parts of a request that are stored with its response.

    Args:
        messages: Messages as JSON text.
    """

    messages: str
    metadata: dict[str, str]


def parse_request_to_store(wire: ChatRequest, body: JsonObject, *, storing: bool) -> RequestToStore | None:
    """Return the parts of a request to store; None if it does not ask for storage.

    Args:
        storing: True if the server stores responses.

    Raises:
        ProblemError: 400 for wrong metadata, or for `store` where storage is disabled.
    """
    if not wire.store:
        return None
    if not storing:
        raise ProblemError(storing_disabled())
    return RequestToStore(json.dumps(body["messages"]), parse_metadata(body.get("metadata")))


async def save_completion(
    store: Ref[StoreMessage],
    owner: str,
    formatter: ChatFormatter,
    request: RequestToStore,
    model: str,
    choices: Sequence[CollectedChoice],
) -> Problem | None:
    """Store a complete chat response, and return a problem if that failed.

    Args:
        owner: Owner of the stored completion.
        formatter: Formatter that makes the stored body.
        model: Name of the model that answered.
    """
    completion = StoredCompletion(
        id=formatter.answer_id,
        owner=owner,
        created=formatter.created,
        model=model,
        messages=request.messages,
        body=json_bytes(formatter.whole(model, choices)).decode(),
        metadata=request.metadata,
    )
    failed = await ask_store_or_failed(store, lambda tables: tables.completions.save(completion), writes=True)
    return None if failed is None else failed.problem


def completion_document(completion: StoredCompletion) -> bytes:
    """Return a stored completion as JSON, with its metadata."""
    return b'%b,"metadata":%b}' % (
        completion.body.encode().removesuffix(b"}"),
        json_bytes(dict(completion.metadata)),
    )


def completion_messages(completion: StoredCompletion, query: ListQuery) -> JsonObject:
    """Return a page of the request messages of a completion.

    Raises:
        ProblemError: 404 if `after` names none of its messages.
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
            detail = f"`after` names no message of this completion: {query.after[:80]!r}."
            raise ProblemError(Problem(404, "not_found", detail, "after"))
        messages = messages[ids.index(query.after) + 1 :]
    page = messages[: query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(messages) > len(page),
    }


def _message(message: dict[str, Any], ident: str) -> dict[str, Any]:
    """Return a stored message with an id; content parts are also joined into one text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    if parts is not None:
        content = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    return {**message, "id": ident, "content": content, "content_parts": parts}
