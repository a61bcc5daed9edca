"""The parameters of Anthropic's endpoints, by their names on the wire.

A parameter stands in one of these tables, or in the wire type if it is none of generation. Parameters that
change nothing about the answer stand nowhere: `metadata`, and `cache_control`, since every prompt is cached.
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
"""Of `POST /v1/messages`. The API version 2026-10-21 has no sampling parameters; here every version has."""

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
