"""Names of generation parameters in OpenAI's endpoints and in extensions of other servers.

Generation parameters are listed in these tables, all others in the wire types. Parameters that do not affect
the response (`user`, `metadata`, `prompt_cache_key`, …) are not listed.
"""

from __future__ import annotations

from greenroom.http.answering.requests.request_parameters import NeutralValues, ParameterTable
from greenroom.schemas.messages.messages import JsonObject

_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "xtc_probability",
    "xtc_threshold",
    "max_tokens",
)

COMPLETION_PARAMETERS: ParameterTable = {name: name for name in _SAME_NAME}
"""Parameters of `POST /v1/completions`; its `logprobs` is a number and is parsed separately."""

CHAT_PARAMETERS: ParameterTable = {
    **COMPLETION_PARAMETERS,
    "max_completion_tokens": "max_tokens",
    "thinking.budget_tokens": "thinking_budget",
    "reasoning.max_tokens": "thinking_budget",
    "reasoning_max_tokens": "thinking_budget",
    "thinking_budget": "thinking_budget",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
}
"""Parameters of `POST /v1/chat/completions`."""

_TOKENS_OF_VLLM: NeutralValues = {
    "prompt_logprobs": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
}

UNSUPPORTED_IN_CHAT: NeutralValues = {
    **_TOKENS_OF_VLLM,
    "echo": (False,),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "moderation": (),
    "service_tier": ("auto", "default", "flex"),
}

UNSUPPORTED_IN_COMPLETIONS: NeutralValues = {
    **_TOKENS_OF_VLLM,
    "truncation": ("disabled",),
}


def without_no_limit(body: JsonObject) -> JsonObject:
    """Return a body without a limit of -1 tokens, which LM Studio's and llama.cpp's clients send for none."""
    limits = ("max_tokens", "max_completion_tokens")
    return {name: value for name, value in body.items() if not (name in limits and value == -1)}
