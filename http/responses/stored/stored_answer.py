"""Answering of requests with a stored response: the actor generates it, and the request subscribes to it."""

from __future__ import annotations

from contextlib import closing
from typing import cast

import attrs
from quart import Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.responses.handles import Subscribed, Subscription
from greenroom.http.answering.http_responses import stored_json_response, stream_response
from greenroom.http.answering.requests.current_request import (
    request_client,
    request_owner,
    request_resources,
    send_notice,
)
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.event_stream import Events, EventStream
from greenroom.http.answering.streaming.response_timing import wait_for_first_event
from greenroom.http.guard.answer_account import AnswerAccount
from greenroom.http.responses.history.conversation_lock import lock_conversation
from greenroom.http.responses.history.history_reader import HistoryReader
from greenroom.http.responses.requests.response_request import ParsedResponseRequest
from greenroom.http.responses.stored.response_writer import ResponseWriter
from greenroom.http.responses.stored.stored_stream import StoredStream
from greenroom.schemas.messages.priority import BACKGROUND
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.responses_protocol import RunEnded, StartRun
from greenroom.schemas.stored import StoredResponse


async def answer_stored(
    services: RouteServices, histories: HistoryReader, request: ParsedResponseRequest, *, stream: bool
) -> Response:
    """Generate and store a response, and return it: complete, as a stream, or in its initial state.

    Raises:
        ProblemError: The request is rejected, or failed before its status was sent.
    """
    start = await _prepare(services, histories, request, stream=stream)
    subscribed = await ask_actor(services.refs.responses, start, Subscribed)
    subscription = subscribed.subscription
    request_resources().enter_context(closing(subscription))
    if stream:
        events = as_events(subscription)
        received = [] if request.background else await wait_for_first_event(events, services.status_timeout)
        send_notice(received)
        formatted = StoredStream(request.formatter.stream(subscription.model or str(start.request.key)))
        return stream_response(EventStream(events, formatted, received))
    if subscribed.response is not None:
        send_notice(subscription.receive_ready())
        return await stored_response(services.answers, subscribed.response)
    return await _whole(services.answers, subscription)


def as_events(subscription: Subscription) -> Events:
    """Return a subscription typed as a stream's events; `StoredStream` accepts all of its entries."""
    return cast("Events", subscription)


async def stored_response(answers: AnswerAccount, response: StoredResponse) -> Response:
    """Return the HTTP response with a stored response.

    Raises:
        ProblemError: 503 if unsent responses use up the memory budget.
    """
    return await stored_json_response(answers, len(response.body), response.body.encode)


async def _prepare(
    services: RouteServices, histories: HistoryReader, request: ParsedResponseRequest, *, stream: bool
) -> StartRun:
    """Return the run to start. A conversation is locked before its history is read."""
    owner, lock = request_owner(), None
    if request.conversation:
        lock = await lock_conversation(services.refs.responses, request.conversation, owner)
    complete = await histories.complete(request, owner, request_client())
    writer = ResponseWriter(
        request.formatter.echo,
        request.formatter.answer_id,
        request.formatter.created,
        str(complete.request.key),
        owner,
        complete.stored_input,
        request.background,
        request.conversation,
        request.previous if request.conversation is None else None,
        keeps_prompt=complete.turns.system_prompt is None,
    )
    inference = await services.with_files(complete.request)
    background, patience = request.background, services.status_timeout
    limited = not (stream or background)
    if background and not stream:  # nobody waits for it
        inference = attrs.evolve(inference, priority=max(inference.priority, BACKGROUND))
    return StartRun(inference, writer.id, owner, writer, background, patience, lock, limited)


async def _whole(answers: AnswerAccount, subscription: Subscription) -> Response:
    end = await subscription.wait_ended()
    if end.problem is not None:
        raise ProblemError(end.problem)
    assert isinstance(end, RunEnded)
    send_notice(subscription.receive_ready())
    return await stored_response(answers, end.response)
