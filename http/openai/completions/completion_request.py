"""Parsing of `POST /v1/completions` into protocol-independent requests."""

from __future__ import annotations

from typing import Any

from greenroom.http.answering.explanation_body import parse_explained
from greenroom.http.answering.requests.request_parameters import (
    parse_model_key,
    parse_parameters,
    parse_priority,
)
from greenroom.http.openai.text.parameters import COMPLETION_PARAMETERS, without_no_limit
from greenroom.http.openai.text.response_format import parse_response_format
from greenroom.schemas.messages.generation import check
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.openai.completions import CompletionRequest
from greenroom.schemas.problems import invalid

MAX_SCORED_TOKENS = 131_072
"""Largest number of prompt tokens to echo with log-probabilities, over all prompts and choices."""


def parse_completion_requests(
    wire: CompletionRequest, body: JsonObject, request_id: str, client: str = ""
) -> list[InferenceRequest]:
    """Parse a completion request into one protocol-independent request per prompt.

    Args:
        wire: Wire type that `body` was structured into.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    echo, answered = bool(wire.echo), True
    if echo and wire.max_tokens == 0 and not isinstance(wire.max_tokens, bool):
        answered = False
        body = {name: value for name, value in body.items() if name != "max_tokens"}
    overrides = parse_parameters(without_no_limit(body), COMPLETION_PARAMETERS) | _logprobs(wire)
    overrides |= _candidates(wire, overrides)
    response_format, priority = parse_response_format(body), parse_priority(body)
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
            priority=priority,
            explained=parse_explained(body),
        )
        for i, prompt in enumerate(prompts)
    ]


def wants_logprobs(wire: CompletionRequest) -> bool:
    return wire.logprobs is not None and wire.logprobs is not False


def parse_choices(wire: CompletionRequest, candidates: int) -> int:
    """Return the number of choices to return per prompt, out of the generated candidates."""
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
