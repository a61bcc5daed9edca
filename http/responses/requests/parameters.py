"""The generation parameters of responses, by their names on the wire.

Each generation parameter is in one of these tables; the other members of a request are in its wire type.
"""

from __future__ import annotations

from typing import Any

from greenroom.http.answering.requests.request_parameters import (
    NeutralValues,
    ParameterTable,
    parse_parameters,
)
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.responses.requests import LOGPROBS, PromptRequest, ResponseRequest

_EXTENSIONS = (
    "top_k",
    "min_p",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "seed",
    "repetition_penalty",
    "logit_bias",
    "xtc_probability",
    "xtc_threshold",
    "thinking_budget",
)
"""Parameters of this server's chat API that OpenAI's Responses API lacks."""

RESPONSE_PARAMETERS: ParameterTable = {
    **{name: name for name in _EXTENSIONS},
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_output_tokens": "max_tokens",
    "top_logprobs": "top_logprobs",
    "reasoning.max_tokens": "thinking_budget",
}
"""Internal name of each parameter of `POST /v1/responses`, by its name on the wire."""

UNSUPPORTED: NeutralValues = {
    "access_programs.cyber": ("standard",),
    "context_management": ([],),
    "image.context_compression": ("auto", "disabled"),
    "moderation": (),
    "n": (1,),
    "personality": (),
    "prompt": (),
    "reasoning.mode": ("standard",),
    "service_tier": ("auto", "default", "flex"),
}


def parse_response_parameters(wire: PromptRequest, body: JsonObject) -> dict[str, Any]:
    """Return the generation parameters that a client has set.

    Raises:
        ProblemError: 400 that names the field.
    """
    parameters = parse_parameters(body, RESPONSE_PARAMETERS)
    included = isinstance(wire, ResponseRequest) and LOGPROBS in (wire.include or ())
    if included or parameters.get("top_logprobs"):
        parameters["logprobs"] = True
    return parameters
