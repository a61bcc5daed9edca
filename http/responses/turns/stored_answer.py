"""Answering of requests with a stored response: the actor generates it, and the request subscribes to it."""

from __future__ import annotations

from contextlib import closing
from typing import cast

import trio
from quart import Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.responses.handles import Subscribed, Subscription
from greenroom.http.answering.http_responses import stored_json_response, stream_response
from greenroom.http.answering.requests.current_request import (
    request_client,
    request_owner,
    request_resources,
)
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.event_stream import Events, EventStream
from greenroom.http.answering.streaming.response_timing import wait_for_first_event
from greenroom.http.guard.answer_account import AnswerAccount
from greenroom.http.responses.history.held_conversation import hold_conversation
from greenroom.http.responses.history.recall import HistoryReader
from greenroom.http.responses.turns.run_record import RunRecord
from greenroom.http.responses.turns.stored_stream import StoredStream
from greenroom.http.responses.turns.turn import Turn
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.responses_protocol import RunEnded, StartRun
from greenroom.schemas.stored import StoredResponse


async def answer_stored(
    services: RouteServices, histories: HistoryReader, turn: Turn, *, stream: bool
) -> Response:
    """Generate and store a response, and return it: complete, as a stream, or in its initial state.

    Raises:
        ProblemError: The request is rejected, or failed before its status was sent.
    """
    start = await _prepare(services, histories, turn)
    subscribed = await ask_actor(services.refs.responses, start, Subscribed)
    subscription = subscribed.subscription
    request_resources().enter_context(closing(subscription))
    if stream:
        events = as_events(subscription)
        received = [] if turn.background else await wait_for_first_event(events, services.status_timeout)
        formatted = StoredStream(turn.formatter.stream(subscription.model or str(start.request.key)))
        return stream_response(EventStream(events, formatted, received))
    if subscribed.response is not None:
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


async def _prepare(services: RouteServices, histories: HistoryReader, turn: Turn) -> StartRun:
    """Return the run to start. A conversation is locked before its history is read."""
    asked, formatter, owner = turn.asked, turn.formatter, request_owner()
    hold = None
    if asked.conversation:
        hold = await hold_conversation(services.refs.responses, asked.conversation, owner)
    recalled, kept = turn.alone, turn.input
    if recalled is None:
        recalled = await histories.recall(asked, owner, request_client())
        kept = await trio.to_thread.run_sync(recalled.stored_input, formatter.answer_id)
    record = RunRecord(
        formatter.echo,
        formatter.answer_id,
        formatter.created,
        str(recalled.request.key),
        owner,
        kept,
        turn.background,
        asked.conversation,
        asked.previous if asked.conversation is None else None,
        keeps_prompt=recalled.system_prompt is None,
    )
    request = await services.with_files(recalled.request)
    return StartRun(request, record.id, owner, record, turn.background, services.status_timeout, hold)


async def _whole(answers: AnswerAccount, subscription: Subscription) -> Response:
    end = await subscription.wait_ended()
    if end.problem is not None:
        raise ProblemError(end.problem)
    assert isinstance(end, RunEnded)
    return await stored_response(answers, end.response)
