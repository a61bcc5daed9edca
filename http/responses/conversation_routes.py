"""`/v1/conversations` and their items: create, read, update, list and delete."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import attrs
from quart import Blueprint, Response, request
from werkzeug.datastructures import MultiDict

from greenroom.actors.store.tables import ask_store
from greenroom.http.answering.current_request import request_client, request_owner
from greenroom.http.answering.http_responses import json_response, stored_json_response
from greenroom.http.answering.protocols import STORED, described
from greenroom.http.answering.request_parameters import (
    DEFAULT_PAGE,
    ListQuery,
    parse_list_query,
    parse_metadata,
    query_boolean,
)
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.responses.history_reader import HistoryReader, locked_conversation
from greenroom.http.responses.item_bodies import check_included, item_document, item_page
from greenroom.schemas.problems import invalid
from greenroom.schemas.stored import ConversationPage, ItemPage, StoredConversation
from greenroom.schemas.wire.responses_items import RESPONSES
from greenroom.schemas.wire.responses_requests import AddItemsRequest, CreateRequest, UpdateRequest

MAX_QUERY = 512  # Most characters of a search; titles are no longer (OpenAI's limit of metadata)


@attrs.frozen
class ConversationQuery:
    """Position and size of a page of conversations, and a search.

    Args:
        after: Id of the conversation that precedes the page; None for the beginning.
        query: Text that their `metadata.title` contains; empty for all.
    """

    after: str | None = None
    limit: int = DEFAULT_PAGE
    query: str = ""


@attrs.frozen
class DeletionQuery:
    """Options for the deletion of a conversation. `responses`: True to delete its ended responses too."""

    responses: bool = False


def conversation_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    routes = Blueprint("conversations", __name__)
    store = services.refs.store
    path = "/v1/conversations/<conversation_id>"

    @routes.post("/v1/conversations")
    @described("Create a conversation", body=CreateRequest, converter=RESPONSES, problems=STORED)
    async def create() -> Response:
        wire, metadata = await services.read_request(CreateRequest, RESPONSES, {}, _metadata, files=True)
        items = await histories.stored_form(wire.items or (), request_owner(), request_client())
        created = StoredConversation(f"conv_{uuid4().hex}", request_owner(), time.time(), metadata)
        await ask_store(store, lambda tables: tables.conversations.create(created, items), writes=True)
        return json_response(_conversation(created))

    @routes.get("/v1/conversations")
    @described("List the conversations, the newest first", query=ConversationQuery, problems=STORED)
    async def listed() -> Response:
        query = parse_list_query(request.args, "desc")
        if query.order != "desc":
            raise invalid("`order` must be 'desc': conversations are listed the newest first.", "order")
        owner, search = request_owner(), _search(request.args)
        page = await ask_store(
            store, lambda tables: tables.conversations.list(owner, query.after, query.limit, search)
        )
        return json_response(_listed(page))

    @routes.get(path)
    @described("Show a conversation", problems=STORED)
    async def find(conversation_id: str) -> Response:
        owner = request_owner()
        found = await ask_store(store, lambda tables: tables.conversations.find(conversation_id, owner))
        latest = dict(zip(("id", "status"), found.latest or (), strict=False))
        return json_response({**_conversation(found), **({"latest_response": latest} if latest else {})})

    @routes.post(path)
    @described(
        "Change the metadata of a conversation", body=UpdateRequest, converter=RESPONSES, problems=STORED
    )
    async def update(conversation_id: str) -> Response:
        _, metadata = await services.read_request(UpdateRequest, RESPONSES, {}, _metadata)
        owner = request_owner()
        changed = await ask_store(
            store, lambda tables: tables.conversations.update(conversation_id, owner, metadata), writes=True
        )
        return json_response(_conversation(changed))

    @routes.delete(path)
    @described("Delete a conversation", query=DeletionQuery, problems=STORED)
    async def delete(conversation_id: str) -> Response:
        owner, responses = request_owner(), bool(query_boolean(request.args, "responses"))
        await ask_store(
            store,
            lambda tables: tables.responses.delete_conversation(conversation_id, owner, responses=responses),
            writes=True,
        )
        return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    return routes


def conversation_item_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    routes = Blueprint("conversation_items", __name__)
    refs, answers = services.refs, services.answers
    path = "/v1/conversations/<conversation_id>/items"

    @routes.post(path)
    @described("Add items to a conversation", body=AddItemsRequest, converter=RESPONSES, problems=STORED)
    async def add(conversation_id: str) -> Response:
        included = check_included(request.args)
        wire, _ = await services.read_request(
            AddItemsRequest, RESPONSES, {}, lambda wire, _: None, files=True
        )
        owner = request_owner()
        await ask_store(refs.store, lambda tables: tables.conversations.find(conversation_id, owner))
        items = await histories.stored_form(wire.items, owner, request_client())
        async with locked_conversation(refs.responses, conversation_id, owner):
            await ask_store(
                refs.store,
                lambda tables: tables.conversations.add_items(conversation_id, owner, items),
                writes=True,
            )
        return await item_page(answers, ItemPage(items, has_more=False), included)

    @routes.get(path)
    @described("List the items of a conversation", query=ListQuery, problems=STORED)
    async def list_items(conversation_id: str) -> Response:
        included = check_included(request.args)
        query, owner = parse_list_query(request.args, "desc"), request_owner()
        page = await ask_store(
            refs.store,
            lambda tables: tables.conversations.list_items(
                conversation_id, owner, query.after, query.limit, query.order
            ),
        )
        return await item_page(answers, page, included)

    @routes.get(f"{path}/<item_id>")
    @described("Show an item of a conversation", problems=STORED)
    async def find_item(conversation_id: str, item_id: str) -> Response:
        included = check_included(request.args)
        owner = request_owner()
        item = await ask_store(
            refs.store, lambda tables: tables.conversations.find_item(conversation_id, owner, item_id)
        )
        return await stored_json_response(answers, len(item.body), lambda: item_document(item, included))

    @routes.delete(f"{path}/<item_id>")
    @described("Delete an item of a conversation", problems=STORED)
    async def delete_item(conversation_id: str, item_id: str) -> Response:
        owner = request_owner()
        async with locked_conversation(refs.responses, conversation_id, owner):
            changed = await ask_store(
                refs.store,
                lambda tables: tables.conversations.remove_item(conversation_id, owner, item_id),
                writes=True,
            )
        return json_response(_conversation(changed))

    return routes


def _metadata(wire: CreateRequest | UpdateRequest, _body: object) -> dict[str, str]:
    return parse_metadata(wire.metadata)


def _search(args: MultiDict[str, str]) -> str:
    text = args.get("query", "")
    if len(text) > MAX_QUERY:
        raise invalid(f"`query` may have at most {MAX_QUERY} characters.", "query")
    return text


def _listed(page: ConversationPage) -> dict[str, Any]:
    found = [_conversation(each) for each in page.conversations]
    ids = [each["id"] for each in found] or [None]
    ends = {"first_id": ids[0], "last_id": ids[-1]}
    return {"object": "list", "data": found, **ends, "has_more": page.has_more}


def _conversation(conversation: StoredConversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created),
        "metadata": dict(conversation.metadata),
    }
