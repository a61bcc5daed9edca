"""`POST /v1/completions`: validate, ask, format."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref
from greenroom.actors.generation import Generation
from greenroom.http.answering.answering import answer_id, collect, json_response, request_id, stream_response
from greenroom.http.answering.collected_answer import Choice
from greenroom.http.answering.event_stream import EventStream
from greenroom.http.answering.parallel_generations import ParallelGenerations
from greenroom.http.answering.response_timing import until_admitted, until_begun
from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.request_body import read_json
from greenroom.http.openai.chat_request import generation_overrides, model_name
from greenroom.http.openai.completion_stream import CompletionStream
from greenroom.http.openai.whole_answers import completion
from greenroom.http.transport.request_connection import held
from greenroom.schemas.events import GenerationEvent
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import PoolMessage
from greenroom.schemas.openai.completions import CompletionRequest
from greenroom.schemas.openai.structured_output import wanted_format
from greenroom.schemas.openai.unsupported import COMPLETIONS, refuse_unsupported
from greenroom.schemas.problems import invalid
from greenroom.schemas.requests import GenerationRequest, RawInput
from greenroom.schemas.wire import structure


def completion_routes(pool: Ref[PoolMessage], patience: float) -> Blueprint:
    """The routes.

    Args:
        patience: Seconds that a client waits for its status at most.
    """
    routes = Blueprint("completions", __name__)

    @routes.post("/v1/completions")
    async def completions() -> Response:
        body = await read_json(request)
        refuse_unsupported(body, COMPLETIONS)
        wire = structure(body, CompletionRequest)
        asked = _requests(wire, request_id(), client_name(request.headers, request.remote_addr))
        choices = asked[0].choices
        echoes = tuple(echo for echo in _echoes(wire) for _ in range(choices))
        generations = [held().enter_context(Generation(pool, one)) for one in asked]
        created = int(time.time())
        begun = await _begin(generations, patience if wire.stream else math.inf)
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


async def _begin(generations: Sequence[Generation], patience: float) -> list[GenerationEvent]:
    if len(generations) == 1:
        return await until_begun(generations[0], patience)
    await until_admitted(generations, patience)
    return []


async def _collect(
    generations: Sequence[Generation], choices: int, begun: list[GenerationEvent]
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


def _requests(wire: CompletionRequest, request_id: str, client: str) -> list[GenerationRequest]:
    overrides = generation_overrides(wire) | _logprobs(wire)
    wanted = wanted_format(wire)
    prompts = wire.prompt.prompts
    return [
        GenerationRequest(
            request_id if len(prompts) == 1 else f"{request_id}-{i}",
            ModelKey(model_name(wire.model)),
            RawInput(prompt),
            overrides,
            client,
            response_format=wanted,
        )
        for i, prompt in enumerate(prompts)
    ]


def _logprobs(wire: CompletionRequest) -> dict[str, Any]:
    wanted = wire.logprobs
    if wanted is None or wanted is False:
        return {}
    if wire.echo:
        raise invalid(
            "`logprobs` of an echoed prompt are not supported.", "logprobs", "unsupported_parameter"
        )
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= 5:
        raise invalid(f"`logprobs` is {wanted!r:.80}, but it must be an integer from 0 to 5.", "logprobs")
    return {"logprobs": True, "top_logprobs": wanted}


def _echoes(wire: CompletionRequest) -> tuple[str, ...]:
    echoes = []
    for prompt in wire.prompt.prompts:
        if wire.echo and not isinstance(prompt, str):
            raise invalid("`echo` needs prompts that are text.", "echo", "unsupported_parameter")
        echoes.append(prompt if wire.echo and isinstance(prompt, str) else "")
    return tuple(echoes)
