"""Shared handling of generation requests of every protocol, as a complete response or as a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from quart import Response

from greenroom.actors.requests.generation import Generation, RequestEvents
from greenroom.actors.tools.conversation import start_generation
from greenroom.http.answering.collecting import (
    CollectedChoice,
    CompletedEventStream,
    OnComplete,
    collect_choices,
)
from greenroom.http.answering.current_request import (
    request_resources,
    send_notice,
    tell_backend,
    tell_choices,
)
from greenroom.http.answering.event_stream import (
    EventStream,
    ParallelEventStream,
    ParallelGenerations,
    StreamFormatter,
    wait_for_admission,
    wait_for_first_event,
)
from greenroom.http.answering.http_responses import large_json_response, stream_response
from greenroom.http.answering.route_services import RouteServices
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.tools_protocol import ToolLoop


class AnswerFormatter(Protocol):
    def stream(self, model: str) -> StreamFormatter:
        """Return a formatter for a streamed response of that model."""

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> object:
        """Return the complete response of that model, as a JSON-like object or as bytes of JSON."""


async def answer_request(
    services: RouteServices,
    requests: Sequence[InferenceRequest],
    formatter: AnswerFormatter,
    *,
    stream: bool,
    on_complete: OnComplete | None = None,
    loop: ToolLoop | None = None,
) -> Response:
    """Generate, and return a complete response or a stream whose first event has arrived.

    The generations end with the HTTP request, whether its response was sent or its client has disconnected.

    Args:
        requests: Prompts of one HTTP request, equal in all but their input. Choices are numbered by prompt,
            then by choice.
        on_complete: Step that follows the complete response to a single prompt; None for none.
        loop: Tools that this server calls for a single prompt with one choice; None for none.

    Raises:
        ProblemError: The request was refused or failed before its status was sent, or the step after its
            response did.
    """
    requests = [await services.with_files(request) for request in requests]
    tell_choices(sum(each.choices for each in requests))
    resources = request_resources()
    refs, limited = services.refs, not stream
    if loop is not None and (len(requests) > 1 or requests[0].choices > 1):
        raise invalid("`n` must be 1 where this server calls tools.", "n")
    generations = [
        resources.enter_context(start_generation(refs.pool, refs.tools, each, loop, limited=limited))
        for each in requests
    ]
    received = await _wait_for_status(generations, services.status_timeout if stream else math.inf)
    send_notice(received)
    tell_backend(generations[0].backend)
    model = generations[0].key.model
    if stream:
        return stream_response(_event_stream(generations, formatter.stream(model), received, on_complete))
    choices = await _collect(generations, received)
    if on_complete is not None and (problem := await on_complete.run(model, choices)) is not None:
        raise ProblemError(problem)
    tokens = sum(choice.shown_tokens for choice in choices)
    return await large_json_response(lambda: formatter.whole(model, choices), tokens)


async def stream_request(
    services: RouteServices,
    request: InferenceRequest,
    formatter: StreamFormatter,
    *,
    status_timeout: float | None = None,
    body: type[EventStream] = EventStream,
) -> Response:
    """Generate, and return a stream for a request that is only ever answered by a stream.

    Args:
        status_timeout: Longest wait for the status, in seconds; None for that of the services.

    Raises:
        ProblemError: The request was refused, or failed before its status was sent.
    """
    request = await services.with_files(request)
    generation = request_resources().enter_context(Generation(services.refs.pool, request))
    timeout = services.status_timeout if status_timeout is None else status_timeout
    received = await wait_for_first_event(generation, timeout)
    send_notice(received)
    tell_backend(generation.backend)
    return stream_response(body(generation, formatter, received))


async def _wait_for_status(
    generations: Sequence[RequestEvents], status_timeout: float
) -> list[InferenceEvent]:
    if len(generations) == 1:
        return await wait_for_first_event(generations[0], status_timeout)
    await wait_for_admission(generations, status_timeout)
    return []


def _event_stream(
    generations: Sequence[RequestEvents],
    formatter: StreamFormatter,
    received: list[InferenceEvent],
    on_complete: OnComplete | None,
) -> EventStream:
    if len(generations) > 1:
        return ParallelEventStream(ParallelGenerations(generations), formatter)
    generation = generations[0]
    if on_complete is None:
        return EventStream(generation, formatter, received)
    return CompletedEventStream(generation, formatter, received, on_complete)


async def _collect(
    generations: Sequence[RequestEvents], received: list[InferenceEvent]
) -> list[CollectedChoice]:
    choices = sum(generation.request.choices for generation in generations)
    if len(generations) == 1:
        return await collect_choices(generations[0], choices, received)
    async with ParallelGenerations(generations) as events:
        return await collect_choices(events, choices)
