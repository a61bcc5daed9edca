"""Names of generation parameters in Anthropic's endpoints.

Generation parameters are listed in these tables, all others in the wire types. Parameters that do not affect
the response are not listed: `metadata`, and `cache_control`, since every prompt is cached.
"""

from __future__ import annotations

from greenroom.http.answering.requests.request_parameters import NeutralValues, ParameterTable

MESSAGE_PARAMETERS: ParameterTable = {
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "thinking.budget_tokens": "thinking_budget",
}
"""Parameters of `POST /v1/messages`.

API version 2026-10-21 has no sampling parameters, but here every version accepts them.
"""

UNSUPPORTED: NeutralValues = {
    "billing_policy": (),
    "compaction": (),
    "container": (),
    "fallbacks": ([],),
    "inference_geo": ("global",),
    "mcp_servers": ([],),
    "output_config.task_budget": (),
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
    "thread": (),
}
