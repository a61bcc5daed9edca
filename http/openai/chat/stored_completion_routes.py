"""Routes of stored chat completions: `GET /v1/chat/completions` and its subpaths."""

from __future__ import annotations

from quart import Blueprint, Response, request
from werkzeug.datastructures import MultiDict

from greenroom.actors.store.answers import ask_store
from greenroom.http.answering.http_responses import (
    json_response,
    list_response,
    stored_json_response,
)
from greenroom.http.answering.protocols.route_description import STORED, described
from greenroom.http.answering.requests.current_request import request_owner
from greenroom.http.answering.requests.list_query import ListQuery, parse_list_query
from greenroom.http.answering.requests.metadata import parse_metadata
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.guard.answer_account import AnswerAccount
from greenroom.http.openai.chat.stored_completion import completion_document, completion_messages
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.openai.stored_completions import UpdateRequest
from greenroom.schemas.problems import invalid
from greenroom.schemas.stored import CompletionPage, StoredCompletion


def stored_completion_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that read, update and delete stored completions."""
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
    """Return the metadata to filter by: `metadata[key]=value` in a query.

    Raises:
        ProblemError: 400 where the query has `metadata` without a key.
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
