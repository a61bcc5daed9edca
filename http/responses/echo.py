"""The request's members that its response repeats, with defaults for absent ones."""

from __future__ import annotations

from typing import Any

from greenroom.http.answering.request_parameters import parse_metadata
from greenroom.http.responses.response_object import ResponseEcho
from greenroom.http.responses.tools import tool_echoes
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING, ReasoningParam, ResponseRequest

MAX_ECHO = 4_000_000  # Limit of the echo in bytes; every lifecycle event of a response contains it
LONGEST = {"safety_identifier": 128, "prompt_cache_key": 1_024, "user": 1_024}
"""Length limits in characters, by member."""


def make_echo(
    wire: ResponseRequest, parameters: Overrides, text_format: JsonObject, *, stored: bool
) -> ResponseEcho:
    """Return the echo of a request.

    Args:
        parameters: The request's parameters, with the operator's defaults for absent ones.
        stored: True if the response will be stored.

    Raises:
        ProblemError: 400 that names the field.
    """
    _check_lengths(wire)
    if wire.max_tool_calls is not None and wire.max_tool_calls < 1:
        raise invalid("`max_tool_calls` must be at least 1.", "max_tool_calls")
    goes_on = wire.previous_response_id or wire.conversation or wire.conversation_id
    members: dict[str, Any] = {
        "previous_response_id": wire.previous_response_id,
        "instructions": wire.instructions,
        "tools": tool_echoes(wire.tools or ()),
        "tool_choice": "auto" if wire.tool_choice is None else wire.tool_choice,
        "truncation": wire.truncation or ("auto" if goes_on else "disabled"),
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "text": {"format": text_format, "verbosity": (wire.text and wire.text.verbosity) or "medium"},
        "top_p": parameters.get("top_p", 1.0),
        "presence_penalty": parameters.get("presence_penalty", 0.0),
        "frequency_penalty": parameters.get("frequency_penalty", 0.0),
        "top_logprobs": parameters.get("top_logprobs", 0),
        "temperature": parameters.get("temperature", 1.0),
        "reasoning": _reasoning(wire.reasoning or ReasoningParam()),
        "max_output_tokens": parameters.get("max_tokens"),
        "max_tool_calls": wire.max_tool_calls,
        "store": stored,
        "background": bool(wire.background),
        "service_tier": "flex" if wire.service_tier == "flex" else "default",
        "metadata": parse_metadata(wire.metadata),
        "safety_identifier": wire.safety_identifier,
        "prompt_cache_key": wire.prompt_cache_key,
        **_if_sent(wire),
    }
    encrypts_reasoning = ENCRYPTED_REASONING in (wire.include or ())
    obfuscates = bool(wire.stream_options and wire.stream_options.include_obfuscation)
    echo = ResponseEcho(members, encrypts_reasoning, obfuscates)
    if len(echo.encoded) > MAX_ECHO:
        large = ("tools", "instructions", "text", "tool_choice")
        largest = max(large, key=lambda name: len(str(members[name])))
        raise invalid(f"`{largest}` is more than a response can repeat ({MAX_ECHO:,} bytes).", largest)
    return echo


def _reasoning(reasoning: ReasoningParam) -> dict[str, Any]:
    echo = {"effort": reasoning.effort, "summary": reasoning.summary or reasoning.generate_summary}
    return echo if reasoning.context is None else {**echo, "context": reasoning.context}


def _if_sent(wire: ResponseRequest) -> dict[str, Any]:
    conversation = wire.conversation.id if wire.conversation else wire.conversation_id
    sent: dict[str, Any] = {
        "conversation": None if conversation is None else {"id": conversation},
        "user": wire.user,
        "prompt_cache_retention": wire.prompt_cache_retention,
    }
    if wire.background:
        # Later readers of the stored events need these to get the same stream.
        sent["include"] = list(wire.include) if wire.include else None
        obfuscated = wire.stream_options is not None and wire.stream_options.include_obfuscation
        sent["stream_options"] = {"include_obfuscation": True} if obfuscated else None
    return {name: value for name, value in sent.items() if value is not None}


def _check_lengths(wire: ResponseRequest) -> None:
    for name, longest in LONGEST.items():
        value = getattr(wire, name)
        if value is not None and len(value) > longest:
            raise invalid(f"`{name}` has {len(value)} characters, but must have at most {longest}.", name)
