"""`/v1/conversations` and their items: create, read, update, list and delete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import trio
from quart import Blueprint, Response, request

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import json_response, stored_json_response
from greenroom.http.answering.requests.current_request import read_request, request_client, request_owner
from greenroom.http.answering.requests.list_query import parse_list_query
from greenroom.http.answering.requests.metadata import parse_metadata
from greenroom.http.answering.sealing.server_seal import server_seal
from greenroom.http.responses.history.held_conversation import hold_conversation
from greenroom.http.responses.history.recall import READING
from greenroom.http.responses.history.stand_ins import check_items, find_references
from greenroom.http.responses.items.included import check_included
from greenroom.http.responses.items.item_bodies import item_document, item_page, stored_items
from greenroom.schemas.protocols.store_protocol import (
    AddItems,
    Committed,
    CreateConversation,
    DeleteConversation,
    Deleted,
    DeleteItem,
    FindConversation,
    FindItem,
    ItemPage,
    ListItems,
    UpdateConversation,
)
from greenroom.schemas.responses.conversations import AddItemsRequest, CreateRequest, UpdateRequest
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.items import Item
from greenroom.schemas.stored import StoredConversation, StoredItem


def conversation_routes(refs: ActorRefs) -> Blueprint:
    """Return the blueprint of the routes that create, read, update and delete conversations."""
    routes = Blueprint("conversations", __name__)
    path = "/v1/conversations/<conversation_id>"

    @routes.post("/v1/conversations")
    async def create() -> Response:
        wire, metadata = await read_request(CreateRequest, RESPONSES, {}, _metadata, files=True)
        items = await _stored(refs, wire.items or ())
        created = StoredConversation(f"conv_{uuid4().hex}", request_owner(), time.time(), metadata)
        await ask_actor(refs.store, CreateConversation(created, items), Committed)
        return json_response(_conversation(created))

    @routes.get(path)
    async def find(conversation_id: str) -> Response:
        message = FindConversation(conversation_id, request_owner())
        return json_response(_conversation(await ask_actor(refs.store, message, StoredConversation)))

    @routes.post(path)
    async def update(conversation_id: str) -> Response:
        _, metadata = await read_request(UpdateRequest, RESPONSES, {}, _metadata)
        message = UpdateConversation(conversation_id, request_owner(), metadata)
        return json_response(_conversation(await ask_actor(refs.store, message, StoredConversation)))

    @routes.delete(path)
    async def delete(conversation_id: str) -> Response:
        await ask_actor(refs.store, DeleteConversation(conversation_id, request_owner()), Deleted)
        return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    return routes


def conversation_item_routes(refs: ActorRefs) -> Blueprint:
    """Return the blueprint of the routes for the items of a conversation."""
    routes = Blueprint("conversation_items", __name__)
    path = "/v1/conversations/<conversation_id>/items"

    @routes.post(path)
    async def add(conversation_id: str) -> Response:
        included = check_included(request.args)
        wire, _ = await read_request(AddItemsRequest, RESPONSES, {}, lambda wire, _: None, files=True)
        await ask_actor(refs.store, FindConversation(conversation_id, request_owner()), StoredConversation)
        items = await _stored(refs, wire.items)
        await hold_conversation(refs.responses, conversation_id, request_owner())
        await ask_actor(refs.store, AddItems(conversation_id, request_owner(), items), Committed)
        return await item_page(ItemPage(items, has_more=False), included)

    @routes.get(path)
    async def list_items(conversation_id: str) -> Response:
        included = check_included(request.args)
        query = parse_list_query(request.args, "desc")
        message = ListItems(conversation_id, request_owner(), query.after, query.limit, query.order)
        return await item_page(await ask_actor(refs.store, message, ItemPage), included)

    @routes.get(f"{path}/<item_id>")
    async def find_item(conversation_id: str, item_id: str) -> Response:
        included = check_included(request.args)
        message = FindItem(conversation_id, request_owner(), item_id)
        item = await ask_actor(refs.store, message, StoredItem)
        return await stored_json_response(len(item.body), lambda: item_document(item, included))

    @routes.delete(f"{path}/<item_id>")
    async def delete_item(conversation_id: str, item_id: str) -> Response:
        await hold_conversation(refs.responses, conversation_id, request_owner())
        message = DeleteItem(conversation_id, request_owner(), item_id)
        return json_response(_conversation(await ask_actor(refs.store, message, StoredConversation)))

    return routes


def _metadata(wire: CreateRequest | UpdateRequest, _body: object) -> dict[str, str]:
    return parse_metadata(wire.metadata)


async def _stored(refs: ActorRefs, items: Sequence[Item]) -> tuple[StoredItem, ...]:
    """Return items in their stored form, after checking that a model could read them."""
    if not items:
        return ()
    async with READING.lane(request_client()):
        referred = await find_references(refs.store, items, request_owner())
        seal = await server_seal(refs.store)

        def checked() -> tuple[StoredItem, ...]:
            raws = [item.raw for item in check_items(items, referred, seal, trio.from_thread.check_cancelled)]
            return stored_items(raws, lambda prefix, _: f"{prefix}_{uuid4().hex}")

        return await trio.to_thread.run_sync(checked)


def _conversation(conversation: StoredConversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created),
        "metadata": dict(conversation.metadata),
    }
