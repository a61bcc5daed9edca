"""Stored chat completions: storage, and format of later responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
from quart import Blueprint, Response, request
from werkzeug.datastructures import MultiDict

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.problems import storing_disabled
from greenroom.actors.store.tables import StoreMessage, ask_store, ask_store_or_failed
from greenroom.http.answering.collecting import CollectedChoice
from greenroom.http.answering.current_request import request_owner
from greenroom.http.answering.http_responses import json_response, list_response, stored_json_response
from greenroom.http.answering.protocols import STORED, described
from greenroom.http.answering.request_parameters import ListQuery, parse_list_query, parse_metadata
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import json_bytes
from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.http.openai.chat_formatter import ChatFormatter
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.stored import CompletionPage, StoredCompletion
from greenroom.schemas.wire.openai_answers import UpdateRequest
from greenroom.schemas.wire.openai_chat import OPENAI, ChatRequest


@attrs.frozen
class RequestToStore:
    """Parts of a request that are stored with its response."""

    messages: str
    metadata: dict[str, str]


def parse_request_to_store(wire: ChatRequest, body: JsonObject, *, storing: bool) -> RequestToStore | None:
    """Return the parts of a request to store; None if it does not ask for storage. Raises ProblemError: 400
    for wrong metadata, or for `store` where storage is disabled.
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
    """Store a complete chat response, and return a problem if that failed."""
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
    return b'%b,"metadata":%b}' % (
        completion.body.encode().removesuffix(b"}"),
        json_bytes(dict(completion.metadata)),
    )


def completion_messages(completion: StoredCompletion, query: ListQuery) -> JsonObject:
    """Return a page of the request messages of a completion. Raises ProblemError: 404 if `after` names none
    of its messages.
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


def stored_completion_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("stored_completions", __name__)
    store, answers = services.refs.store, services.answers
    path = "/v1/chat/completions/<completion_id>"

    @routes.get("/v1/chat/completions")
    @described("List stored chats", query=ListQuery, problems=STORED)
    async def list_completions() -> Response:
        query = parse_list_query(request.args, "asc")
        owner, model = request_owner(), request.args.get("model") or None
        metadata = parse_metadata(_metadata_filter(request.args))
        page = await ask_store(
            store,
            lambda tables: tables.completions.list(
                owner, query.after, query.limit, query.order, model, metadata
            ),
        )
        return await _page(answers, page)

    async def find(completion_id: str) -> StoredCompletion:
        owner = request_owner()
        return await ask_store(store, lambda tables: tables.completions.find(completion_id, owner))

    @routes.get(path)
    @described("Show a stored chat", problems=STORED)
    async def find_completion(completion_id: str) -> Response:
        return await _document(answers, await find(completion_id))

    @routes.post(path)
    @described("Change the metadata of a stored chat", body=UpdateRequest, converter=OPENAI, problems=STORED)
    async def update_completion(completion_id: str) -> Response:
        _, metadata = await services.read_request(
            UpdateRequest, OPENAI, {}, lambda wire, _: parse_metadata(wire.metadata)
        )
        owner = request_owner()
        changed = await ask_store(
            store, lambda tables: tables.completions.update(completion_id, owner, metadata), writes=True
        )
        return await _document(answers, changed)

    @routes.delete(path)
    @described("Delete a stored chat", problems=STORED)
    async def delete_completion(completion_id: str) -> Response:
        owner = request_owner()
        await ask_store(store, lambda tables: tables.completions.delete(completion_id, owner), writes=True)
        return json_response({"object": "chat.completion.deleted", "id": completion_id, "deleted": True})

    @routes.get(f"{path}/messages")
    @described("List the messages of a stored chat", query=ListQuery, problems=STORED)
    async def list_messages(completion_id: str) -> Response:
        query = parse_list_query(request.args, "asc")
        completion = await find(completion_id)
        return await stored_json_response(
            answers, len(completion.messages), lambda: json_bytes(completion_messages(completion, query))
        )

    return routes


def _metadata_filter(args: MultiDict[str, str]) -> dict[str, str] | None:
    """Return the metadata to filter by: `metadata[key]=value` in a query. Raises ProblemError: 400 where the
    query has `metadata` without a key.
    """
    if "metadata" in args:
        raise invalid("`metadata` must be given entry by entry: `metadata[key]=value`.", "metadata")
    return {
        name.removeprefix("metadata[").removesuffix("]"): value
        for name, value in args.items()
        if name.startswith("metadata[") and name.endswith("]")
    }


async def _document(answers: AnswerAccount, completion: StoredCompletion) -> Response:
    return await stored_json_response(answers, len(completion.body), lambda: completion_document(completion))


async def _page(answers: AnswerAccount, page: CompletionPage) -> Response:
    return await list_response(
        answers,
        lambda: map(completion_document, page.completions),
        sum(len(completion.body) for completion in page.completions),
        [completion.id for completion in page.completions],
        page.has_more,
    )
