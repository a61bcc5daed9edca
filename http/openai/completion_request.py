"""From the wire to the neutral requests: `POST /v1/completions`."""

from __future__ import annotations

from typing import Any

from greenroom.http.answering.request_parameters import parse_model_key, parse_parameters
from greenroom.http.openai.parameters import COMPLETION_PARAMETERS
from greenroom.http.openai.response_format import parse_response_format
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.openai.completions import CompletionRequest
from greenroom.schemas.problems import invalid
from greenroom.schemas.requests import InferenceRequest, RawInput


def parse_completion_requests(
    wire: CompletionRequest, body: JsonObject, request_id: str, client: str = ""
) -> list[InferenceRequest]:
    """Return the requests of a client in neutral words, one for each prompt.

    Args:
        wire: What `body` has been structured to.
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    overrides = parse_parameters(body, COMPLETION_PARAMETERS) | _logprobs(wire)
    response_format = parse_response_format(body)
    prompts = wire.prompt.prompts
    return [
        InferenceRequest(
            request_id if len(prompts) == 1 else f"{request_id}-{i}",
            parse_model_key(wire.model),
            RawInput(prompt, wire.suffix or ""),
            overrides,
            client,
            response_format=response_format,
        )
        for i, prompt in enumerate(prompts)
    ]


def _logprobs(wire: CompletionRequest) -> dict[str, Any]:
    top = wire.logprobs
    if top is None or top is False:
        return {}
    if wire.echo:
        raise invalid(
            "`logprobs` of an echoed prompt are not supported.", "logprobs", "unsupported_parameter"
        )
    if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= 5:
        raise invalid(f"`logprobs` is {top!r:.80}, but it must be an integer from 0 to 5.", "logprobs")
    return {"logprobs": True, "top_logprobs": top}


def parse_echoes(wire: CompletionRequest) -> tuple[str, ...]:
    """Return what each answer begins with: its prompt if the client wants it back, else nothing.

    Raises:
        ProblemError: 400 for a prompt that is no text.
    """
    echoes = []
    for prompt in wire.prompt.prompts:
        if wire.echo and not isinstance(prompt, str):
            raise invalid("`echo` needs prompts that are text.", "echo", "unsupported_parameter")
        echoes.append(prompt if wire.echo and isinstance(prompt, str) else "")
    return tuple(echoes)
