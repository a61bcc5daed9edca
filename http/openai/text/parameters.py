"""The parameters of OpenAI's endpoints and of what others added to them, by their names on the wire.

A parameter stands in one of these tables, or in the wire type if it is none of generation. Parameters that
change nothing about the answer (`user`, `metadata`, `prompt_cache_key`, …) stand nowhere.
"""

from __future__ import annotations

from greenroom.http.answering.requests.request_parameters import NeutralValues, ParameterTable

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
"""Of `POST /v1/completions`, whose `logprobs` is a number and is parsed apart."""

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
"""Of `POST /v1/chat/completions`."""

UNSUPPORTED_IN_CHAT: NeutralValues = {
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "moderation": (),
    "service_tier": ("auto", "default"),
}

UNSUPPORTED_IN_COMPLETIONS: NeutralValues = {
    "truncation": ("disabled",),
}
