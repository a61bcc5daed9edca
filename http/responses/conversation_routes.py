"""`/v1/conversations` and their items: create, read, update, list and delete."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import attrs
from quart import Blueprint, Response, request
from werkzeug.datastructures import MultiDict

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response, stored_json_response
from greenroom.http.answering.protocols.route_description import STORED, described
from greenroom.http.answering.requests.current_request import request_client, request_owner
from greenroom.http.answering.requests.list_query import DEFAULT_PAGE, ListQuery, parse_list_query
from greenroom.http.answering.requests.metadata import parse_metadata
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.responses.history.conversation_lock import lock_conversation
from greenroom.http.responses.history.history_reader import HistoryReader
from greenroom.http.responses.items.included import check_included
from greenroom.http.responses.items.item_bodies import item_document, item_page
from greenroom.http.responses.stored.stored_queries import query_boolean
from greenroom.schemas.problems import invalid
from greenroom.schemas.protocols.conversation_store_protocol import (
    AddItems,
    ConversationPage,
    CreateConversation,
    DeleteConversation,
    DeleteItem,
    FindConversation,
    FindItem,
    ListConversations,
    ListItems,
    UpdateConversation,
)
from greenroom.schemas.protocols.store_protocol import Committed, Deleted, ItemPage
from greenroom.schemas.responses.conversations import AddItemsRequest, CreateRequest, UpdateRequest
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.stored import StoredConversation, StoredItem

MAX_QUERY = 512
"""Most characters of a search; titles are no longer (OpenAI's limit of metadata)."""


@attrs.frozen
class ConversationQuery:
    """Position and size of a page of conversations, and a search.

    Args:
        after: Id of the conversation that precedes the page; None for the beginning.
        limit: Maximum number of conversations.
        query: Text that their `metadata.title` contains; empty for all.
    """

    after: str | None = None
    limit: int = DEFAULT_PAGE
    query: str = ""


@attrs.frozen
class DeletionQuery:
    """Options for the deletion of a conversation.

    Args:
        responses: True to delete its ended responses too.
    """

    responses: bool = False


def conversation_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    """Return the blueprint of the routes that create, read, update and delete conversations."""
    routes = Blueprint("conversations", __name__)
    store = services.refs.store
    path = "/v1/conversations/<conversation_id>"

    @routes.post("/v1/conversations")
    @described("Create a conversation", body=CreateRequest, converter=RESPONSES, problems=STORED)
    async def create() -> Response:
        wire, metadata = await services.read_request(CreateRequest, RESPONSES, {}, _metadata, files=True)
        items = await histories.stored_form(wire.items or (), request_owner(), request_client())
        created = StoredConversation(f"conv_{uuid4().hex}", request_owner(), time.time(), metadata)
        await ask_actor(store, CreateConversation(created, items), Committed)
        return json_response(_conversation(created))

    @routes.get("/v1/conversations")
    @described("List the conversations, the newest first", query=ConversationQuery, problems=STORED)
    async def listed() -> Response:
        query = parse_list_query(request.args, "desc")
        if query.order != "desc":
            raise invalid("`order` must be 'desc': conversations are listed the newest first.", "order")
        message = ListConversations(request_owner(), query.after, query.limit, _search(request.args))
        page = await ask_actor(store, message, ConversationPage)
        found = [_conversation(each) for each in page.conversations]
        ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {}
        members = {"first_id": None, "last_id": None, **ends, "has_more": page.has_more}
        return json_response({"object": "list", "data": found, **members})

    @routes.get(path)
    @described("Show a conversation", problems=STORED)
    async def find(conversation_id: str) -> Response:
        message = FindConversation(conversation_id, request_owner())
        found = await ask_actor(store, message, StoredConversation)
        latest = dict(zip(("id", "status"), found.latest or (), strict=False))
        return json_response({**_conversation(found), **({"latest_response": latest} if latest else {})})

    @routes.post(path)
    @described(
        "Change the metadata of a conversation", body=UpdateRequest, converter=RESPONSES, problems=STORED
    )
    async def update(conversation_id: str) -> Response:
        _, metadata = await services.read_request(UpdateRequest, RESPONSES, {}, _metadata)
        message = UpdateConversation(conversation_id, request_owner(), metadata)
        return json_response(_conversation(await ask_actor(store, message, StoredConversation)))

    @routes.delete(path)
    @described("Delete a conversation", query=DeletionQuery, problems=STORED)
    async def delete(conversation_id: str) -> Response:
        responses = bool(query_boolean(request.args, "responses"))
        await ask_actor(store, DeleteConversation(conversation_id, request_owner(), responses), Deleted)
        return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    return routes


def conversation_item_routes(services: RouteServices, histories: HistoryReader) -> Blueprint:
    """Return the blueprint of the routes for the items of a conversation."""
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
        await ask_actor(refs.store, FindConversation(conversation_id, request_owner()), StoredConversation)
        items = await histories.stored_form(wire.items, request_owner(), request_client())
        await lock_conversation(refs.responses, conversation_id, request_owner())
        await ask_actor(refs.store, AddItems(conversation_id, request_owner(), items), Committed)
        return await item_page(answers, ItemPage(items, has_more=False), included)

    @routes.get(path)
    @described("List the items of a conversation", query=ListQuery, problems=STORED)
    async def list_items(conversation_id: str) -> Response:
        included = check_included(request.args)
        query = parse_list_query(request.args, "desc")
        message = ListItems(conversation_id, request_owner(), query.after, query.limit, query.order)
        return await item_page(answers, await ask_actor(refs.store, message, ItemPage), included)

    @routes.get(f"{path}/<item_id>")
    @described("Show an item of a conversation", problems=STORED)
    async def find_item(conversation_id: str, item_id: str) -> Response:
        included = check_included(request.args)
        message = FindItem(conversation_id, request_owner(), item_id)
        item = await ask_actor(refs.store, message, StoredItem)
        return await stored_json_response(answers, len(item.body), lambda: item_document(item, included))

    @routes.delete(f"{path}/<item_id>")
    @described("Delete an item of a conversation", problems=STORED)
    async def delete_item(conversation_id: str, item_id: str) -> Response:
        await lock_conversation(refs.responses, conversation_id, request_owner())
        message = DeleteItem(conversation_id, request_owner(), item_id)
        return json_response(_conversation(await ask_actor(refs.store, message, StoredConversation)))

    return routes


def _metadata(wire: CreateRequest | UpdateRequest, _body: object) -> dict[str, str]:
    return parse_metadata(wire.metadata)


def _search(args: MultiDict[str, str]) -> str:
    text = args.get("query", "")
    if len(text) > MAX_QUERY:
        raise invalid(f"`query` may have at most {MAX_QUERY} characters.", "query")
    return text


def _conversation(conversation: StoredConversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created),
        "metadata": dict(conversation.metadata),
    }
