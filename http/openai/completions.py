"""The route `POST /v1/completions`."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from statistics import fmean
from typing import Any

import attrs
from quart import Blueprint, Response

from greenroom.http.answering.answer_request import answer_request
from greenroom.http.answering.collecting import CollectedChoice
from greenroom.http.answering.current_request import answer_id, request_client, request_id
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, JSON, described
from greenroom.http.answering.request_parameters import (
    parse_extensions,
    parse_model_key,
    parse_parameters,
)
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import json_ascii, json_string
from greenroom.http.openai.chunk_stream import (
    COMPLETION_PARAMETERS,
    UNSUPPORTED_IN_COMPLETIONS,
    ChunkStream,
    CompletionLogprobs,
    finish_reason,
    includes_status,
    includes_usage,
    system_fingerprint,
    timings,
    usage_body,
    without_no_limit,
)
from greenroom.http.openai.response_format import parse_response_format
from greenroom.schemas.events.events import InferenceEvent, PromptText, TextDelta
from greenroom.schemas.messages.generation import check
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.problems import invalid
from greenroom.schemas.wire.openai_answers import Completion, CompletionChoice, is_sent
from greenroom.schemas.wire.openai_chat import OPENAI, CompletionRequest


def completion_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("completions", __name__)

    @routes.post("/v1/completions")
    @described(
        "Continue a text",
        body=CompletionRequest,
        converter=OPENAI,
        answer=Completion,
        media=(JSON, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def completions() -> Response:
        parse = partial(parse_completion_requests, request_id=request_id(), client=request_client())
        wire, requests = await services.read_request(
            CompletionRequest, OPENAI, UNSUPPORTED_IN_COMPLETIONS, parse, adapts=True
        )
        candidates = requests[0].choices
        choices = parse_choices(wire, candidates)
        formatter = CompletionFormatter(wire, answer_id("cmpl-"), choices, candidates)
        stream = bool(wire.stream)
        return await answer_request(services, requests, formatter, stream=stream)

    return routes


MAX_SCORED_TOKENS = 131_072
"""Largest number of prompt tokens to echo with log-probabilities, over all prompts and choices."""


def parse_completion_requests(
    wire: CompletionRequest, body: JsonObject, request_id: str, client: str = ""
) -> list[InferenceRequest]:
    """Parse a completion request into one protocol-independent request per prompt. Raises ProblemError: 400
    that names the offending field.
    """
    echo, answered = bool(wire.echo), True
    if echo and wire.max_tokens == 0 and not isinstance(wire.max_tokens, bool):
        answered = False
        body = {name: value for name, value in body.items() if name != "max_tokens"}
    overrides = parse_parameters(without_no_limit(body), COMPLETION_PARAMETERS) | _logprobs(wire)
    overrides |= _candidates(wire, overrides)
    response_format, extensions = parse_response_format(body), parse_extensions(body)
    prompts = wire.prompt.prompts
    scored = None
    if echo and wants_logprobs(wire):
        if wire.suffix:
            raise invalid("`logprobs` of an echoed prompt cannot be combined with `suffix`.", "logprobs")
        scored = MAX_SCORED_TOKENS // (len(prompts) * overrides.get("n", 1))
    return [
        InferenceRequest(
            request_id if len(prompts) == 1 else f"{request_id}-{i}",
            parse_model_key(wire.model),
            RawInput(prompt, wire.suffix or "", echo=echo, scored=scored, answered=answered),
            overrides,
            client,
            response_format=response_format,
            **extensions,
        )
        for i, prompt in enumerate(prompts)
    ]


def wants_logprobs(wire: CompletionRequest) -> bool:
    return wire.logprobs is not None and wire.logprobs is not False


def parse_choices(wire: CompletionRequest, candidates: int) -> int:
    return candidates if wire.best_of is None else int(wire.n or 1)


def _logprobs(wire: CompletionRequest) -> dict[str, Any]:
    top = wire.logprobs
    if not wants_logprobs(wire):
        return {}
    if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= 20:
        raise invalid(f"`logprobs` is {top!r:.80}, but it must be an integer from 0 to 20.", "logprobs")
    return {"logprobs": True, "top_logprobs": top}


def _candidates(wire: CompletionRequest, overrides: JsonObject) -> dict[str, Any]:
    """Return parameters that generate `best_of` candidates; empty if these are no more than `n`."""
    if wire.best_of is None:
        return {}
    candidates, choices = check("n", wire.best_of, "best_of"), int(overrides.get("n", 1))
    if candidates < choices:
        raise invalid(f"`best_of` is {candidates}, but must be at least `n`, which is {choices}.", "best_of")
    if candidates == choices:
        return {}
    if wire.stream:
        detail = "`best_of` above `n` cannot be streamed: the best are known when all have ended."
        raise invalid(detail, "best_of", "unsupported_parameter")
    return {"n": candidates, "logprobs": True}


@attrs.frozen
class CompletionFormatter:
    """Formats the response to the prompts of one request.

    Args:
        answer_id: Id of the response, `cmpl-…`.
        candidates: Number of candidates generated per prompt, of which the best are returned (`best_of`).
        created: Unix time in seconds.
    """

    wire: CompletionRequest
    answer_id: str
    choices: int = 1
    candidates: int = attrs.field(default=attrs.Factory(lambda self: self.choices, takes_self=True))
    created: int = attrs.field(factory=lambda: int(time.time()))

    def stream(self, model: str) -> CompletionStream:
        return CompletionStream(
            self.answer_id,
            model,
            self.created,
            choices=len(self.wire.prompt.prompts) * self.choices,
            choices_per_prompt=self.choices,
            include_usage=includes_usage(self.wire.stream_options),
            with_status=includes_status(self.wire.stream_options),
        )

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        finished = [choice.finished for choice in choices]
        answer = Completion(
            self.answer_id,
            self.created,
            model,
            tuple(self._choice(*each) for each in enumerate(self._best(choices))),
            usage_body(finished, self.candidates),
            timings(finished, self.candidates),
            system_fingerprint(),
        )
        return attrs.asdict(answer, filter=is_sent)

    def _best(self, candidates: Sequence[CollectedChoice]) -> Iterator[CollectedChoice]:
        """Yield the candidates of each prompt with the highest mean log-probability."""
        for at in range(0, len(candidates), self.candidates):
            group = candidates[at : at + self.candidates]
            ranked = sorted(group, key=_mean_logprob, reverse=True) if len(group) > self.choices else group
            yield from ranked[: self.choices]

    def _choice(self, index: int, choice: CollectedChoice) -> CompletionChoice:
        text = "".join(piece.text for piece in choice.prompt) + choice.text
        logprobs: dict[str, Any] | None = None
        if wants_logprobs(self.wire):
            first = next((piece.first for piece in choice.prompt), None)
            prompt = chain.from_iterable(piece.logprobs for piece in choice.prompt)
            logprobs = CompletionLogprobs().add(chain(prompt, choice.logprobs), first, empty=True)
        finished = choice.finished
        return CompletionChoice(index, text, finish_reason(finished), finished.stop, logprobs)


def _mean_logprob(choice: CollectedChoice) -> float:
    """Return the mean log-probability of a choice's tokens; an empty choice ranks last."""
    return fmean(entry.logprob for entry in choice.logprobs) if choice.logprobs else -math.inf


class CompletionStream(ChunkStream):
    """Formats one streamed response with one or several choices per prompt."""

    kind = "text_completion"

    @cached_property
    def _logprobs(self) -> defaultdict[int, CompletionLogprobs]:
        return defaultdict(CompletionLogprobs)

    def opening(self) -> bytes:
        return b""

    def event(self, event: InferenceEvent) -> bytes:
        if self._with_status:
            self._news.record(event)
        match event:
            case TextDelta(text, index, logprobs):
                encoded = json_ascii(self._logprobs[index].add(logprobs)) if logprobs else b"null"
                return self._chunk(index, text, logprobs=encoded)
            case PromptText(text, index, first, logprobs):
                encoded = json_ascii(self._logprobs[index].add(logprobs, first))
                return self._chunk(index, text, logprobs=encoded)
            case _:
                return super().event(event)

    def _empty_chunk(self) -> bytes:
        return self._chunk(0, "")

    def _chunk(self, index: int, text: str, reason: bytes = b"null", logprobs: bytes = b"null") -> bytes:
        choice = b'"choices":[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]' % (
            index,
            json_string(text),
            logprobs,
            reason,
        )
        return self._head + choice + self._usage + b"}\n\n"

    def _last_chunk(self, index: int, reason: bytes, stop: bytes) -> bytes:
        return self._chunk(index, "", reason + b',"stop_reason":' + stop)
