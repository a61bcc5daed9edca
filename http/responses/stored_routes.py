"""`/v1/responses/{id}`: retrieve, stream, cancel and delete stored responses; list their input items."""

from __future__ import annotations

from contextlib import closing

import attrs
import trio
from quart import Blueprint, Response, request

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.responses.handles import Subscribed
from greenroom.actors.store.answers import ask_store
from greenroom.http.answering.http_responses import json_response, stream_response
from greenroom.http.answering.protocols.route_description import EVENTS, JSON, STORED, described
from greenroom.http.answering.requests.current_request import request_owner, request_resources
from greenroom.http.answering.requests.list_query import ListQuery, parse_list_query
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.event_stream import EventStream
from greenroom.http.responses.items.included import check_included
from greenroom.http.responses.items.item_bodies import item_page
from greenroom.http.responses.stored.stored_answer import as_events, stored_response
from greenroom.http.responses.stored.stored_queries import parse_stored_query, with_encrypted_reasoning
from greenroom.http.responses.stored.stored_stream import stream_of
from greenroom.schemas.protocols.responses_protocol import CancelRun, Deleted, DeleteRun, Retrieve, Subscribe
from greenroom.schemas.stored import StoredResponse


@attrs.frozen
class StoredQueryParameters:
    """The query of a stored response.

    Args:
        stream: True to return the response as events.
        starting_after: Number of the last event that the client has.
        include_obfuscation: True to pad deltas.
    """

    stream: bool = False
    starting_after: int | None = None
    include_obfuscation: bool | None = None


def stored_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes for stored responses."""
    routes = Blueprint("stored_responses", __name__)
    responses, answers = services.refs.responses, services.answers

    @routes.get("/v1/responses/<ident>")
    @described(
        "Show a stored response, or stream its events",
        query=StoredQueryParameters,
        media=(JSON, EVENTS),
        problems=STORED,
    )
    async def retrieve(ident: str) -> Response:
        query = parse_stored_query(request.args)
        if not query.stream:
            found = await ask_actor(responses, Retrieve(ident, request_owner()), StoredResponse)
            if query.encrypted:
                found = await trio.to_thread.run_sync(with_encrypted_reasoning, found)
            return await stored_response(answers, found)
        subscribed = await ask_actor(responses, Subscribe(ident, request_owner()), Subscribed)
        request_resources().enter_context(closing(subscribed.subscription))
        assert subscribed.response is not None
        stream = await trio.to_thread.run_sync(stream_of, subscribed.response, query)
        return stream_response(EventStream(as_events(subscribed.subscription), stream))

    @routes.delete("/v1/responses/<ident>")
    @described("Delete a stored response", problems=STORED)
    async def delete(ident: str) -> Response:
        await ask_actor(responses, DeleteRun(ident, request_owner()), Deleted)
        return json_response({"id": ident, "object": "response", "deleted": True})

    @routes.post("/v1/responses/<ident>/cancel")
    @described("Cancel a background response", problems=STORED)
    async def cancel(ident: str) -> Response:
        return await stored_response(
            answers, await ask_actor(responses, CancelRun(ident, request_owner()), StoredResponse)
        )

    @routes.get("/v1/responses/<ident>/input_items")
    @described("List the input items of a stored response", query=ListQuery, problems=STORED)
    async def input_items(ident: str) -> Response:
        included = check_included(request.args)
        query, owner = parse_list_query(request.args, "desc"), request_owner()
        page = await ask_store(
            services.refs.store,
            lambda tables: tables.responses.list_input(ident, owner, query.after, query.limit, query.order),
        )
        return await item_page(answers, page, included)

    return routes
