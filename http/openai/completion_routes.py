"""`POST /v1/completions`: validate, ask, format."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType

from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref
from greenroom.actors.generation import Generation
from greenroom.http.answering.answering import collect, json_response, stream_response
from greenroom.http.answering.collected_answer import Choice
from greenroom.http.answering.current_request import answer_id, request_id, request_resources
from greenroom.http.answering.event_stream import EventStream
from greenroom.http.answering.parallel_generations import ParallelGenerations
from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.answering.response_timing import wait_for_admission, wait_for_first_event
from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.request_body import read_json
from greenroom.http.openai.completion_request import parse_completion_requests, parse_echoes
from greenroom.http.openai.completion_stream import CompletionStream
from greenroom.http.openai.parameters import UNSUPPORTED_IN_COMPLETIONS
from greenroom.http.openai.whole_answers import completion
from greenroom.schemas.events import InferenceEvent
from greenroom.schemas.model_protocol import PoolMessage
from greenroom.schemas.openai.completions import CompletionRequest
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import structure


def completion_routes(pool: Ref[PoolMessage], status_timeout: float) -> Blueprint:
    """The routes.

    Args:
        status_timeout: Seconds that a client waits for its status at most.
    """
    routes = Blueprint("completions", __name__)

    @routes.post("/v1/completions")
    async def completions() -> Response:
        body = await read_json(request)
        refuse_unsupported(body, UNSUPPORTED_IN_COMPLETIONS)
        wire = structure(body, CompletionRequest, OPENAI)
        asked = parse_completion_requests(
            wire, body, request_id(), client_name(request.headers, request.remote_addr)
        )
        choices = asked[0].choices
        echoes = tuple(echo for echo in parse_echoes(wire) for _ in range(choices))
        generations = [request_resources().enter_context(Generation(pool, one)) for one in asked]
        created = int(time.time())
        begun = await _begin(generations, status_timeout if wire.stream else math.inf)
        said_of_it = (answer_id("cmpl"), generations[0].key.model, created, echoes)
        if wire.stream:
            usage = bool(wire.stream_options and wire.stream_options.include_usage)
            formatter = CompletionStream(*said_of_it, choices=choices, include_usage=usage)
            if len(generations) > 1:
                return stream_response(ParallelStream(generations, formatter))
            return stream_response(EventStream(generations[0], formatter, begun))
        collected = await _collect(generations, len(echoes), begun)
        return json_response(completion(*said_of_it, collected, choices))

    return routes


async def _begin(generations: Sequence[Generation], status_timeout: float) -> list[InferenceEvent]:
    if len(generations) == 1:
        return await wait_for_first_event(generations[0], status_timeout)
    await wait_for_admission(generations, status_timeout)
    return []


async def _collect(
    generations: Sequence[Generation], choices: int, begun: list[InferenceEvent]
) -> list[Choice]:
    if len(generations) == 1:
        return await collect(generations[0], choices, begun)
    async with ParallelGenerations(generations) as events:
        return await collect(events, choices)


class ParallelStream(EventStream):
    """The body of an answer to several prompts."""

    def __init__(self, generations: Sequence[Generation], formatter: CompletionStream) -> None:
        self._parallel = ParallelGenerations(generations)
        super().__init__(self._parallel, formatter)

    async def __aenter__(self) -> ParallelStream:
        await self._parallel.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._parallel.__aexit__(kind, error, trace)
