"""Names of Ollama's options.

Options without an effect here are accepted: a model always has its whole context (`num_ctx`, `num_keep`), and
its execution is not up to clients (`num_gpu`, `num_thread`, …).
"""

from __future__ import annotations

from typing import Any

from greenroom.http.answering.requests.request_parameters import (
    NeutralValues,
    ParameterTable,
    parse_parameters,
    refuse_unsupported,
)
from greenroom.schemas.messages.messages import JsonObject

PARAMETERS: ParameterTable = {
    **{
        f"options.{name}": name
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "stop",
            "seed",
        )
    },
    "options.repeat_penalty": "repetition_penalty",
    "options.num_predict": "max_tokens",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
}

_HOTTEST_ELSEWHERE = 2.0
_HOTTEST = 100.0
"""Highest temperature: Ollama has no limit, and beyond this one all tokens are about equally likely."""

UNSUPPORTED: NeutralValues = {
    "template": ("",),
    "context": ([],),
    "shift": (False,),
}
"""Unsupported body fields. The context does not shift during generation: the response ends with `length`."""

UNSUPPORTED_IN_GENERATE: NeutralValues = {**UNSUPPORTED, "truncate": (False,)}
"""Unsupported body fields of `/api/generate`: a single prompt has no messages to drop."""

UNSUPPORTED_OPTIONS: NeutralValues = {
    "options.typical_p": (1, 0),
    "options.mirostat": (0,),
    "options.tfs_z": (1,),
}


def parse_options(body: JsonObject) -> dict[str, Any]:
    """Return the generation parameters of a body whose `options` are an object or null.

    Raises:
        ProblemError: 400 that names the option.
    """
    options = dict(body.get("options") or {})
    refuse_unsupported(body, UNSUPPORTED_OPTIONS)
    for name in ("num_predict", "seed"):
        # A negative value means no limit, or no seed.
        if _is_number(options.get(name)) and options[name] < 0:
            del options[name]
    if _is_number(options.get("repeat_last_n")) and options["repeat_last_n"] == 0:
        options.pop("repeat_penalty", None)
    hotter: dict[str, Any] = {}
    if _is_number(options.get("temperature")) and options["temperature"] > _HOTTEST_ELSEWHERE:
        hotter["temperature"] = min(float(options.pop("temperature")), _HOTTEST)
    return parse_parameters({**body, "options": options}, PARAMETERS) | hotter


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
