"""Response bodies of OpenAI's endpoints: every field that the API requires, null included."""

from __future__ import annotations

from typing import Any, Literal

import attrs


def _left_out_if_none() -> Any:
    return attrs.field(default=None, metadata={"optional": True})


def is_sent(field: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether a body has a member: those that only some answers have are left out if None."""
    return value is not None or not field.metadata.get("optional", False)


@attrs.frozen
class UsageBody:
    """Token usage of a request.

    Args:
        greenroom: Explanation of what the request cost, if its client asks for it.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]
    greenroom: Any = _left_out_if_none()


@attrs.frozen
class Timings:
    """Timings of a request, with the field names of llama.cpp's server.

    Args:
        cache_n: Prompt tokens taken from the prefix cache.
        prompt_n: Prompt tokens computed, in `prompt_ms` milliseconds.
        predicted_n: Tokens generated, in `predicted_ms` milliseconds.
        queued_ms: Milliseconds before prefill started, spent waiting for a model, memory or other requests.
        total_ms: Milliseconds from the request's arrival to the end of its last choice.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    queued_ms: float
    total_ms: float


@attrs.frozen
class ChatMessage:
    """The assistant's message. Fields that only some answers have are omitted when they are None."""

    role: Literal["assistant"] = attrs.field(default="assistant", kw_only=True)
    content: str | None
    refusal: str | None = None
    annotations: tuple[Any, ...] = ()
    reasoning_content: str | None = _left_out_if_none()
    reasoning: str | None = _left_out_if_none()
    tool_calls: tuple[dict[str, Any], ...] | None = _left_out_if_none()
    function_call: dict[str, Any] | None = _left_out_if_none()
    greenroom_steps: tuple[dict[str, Any], ...] | None = _left_out_if_none()


@attrs.frozen
class ChatChoice:
    """A choice of a chat completion.

    Args:
        stop_reason: The matching stop string, under vLLM's name; null if none matched.
    """

    index: int
    message: ChatMessage
    finish_reason: str
    stop_reason: str | None
    logprobs: Any = None


@attrs.frozen
class ChatCompletion:
    """The response body of `POST /v1/chat/completions`.

    Args:
        dropped_messages: Number of oldest messages omitted from the prompt; omitted itself if 0.
        service_tier: `flex` if the request asked for that; else omitted.
    """

    id: str
    object: Literal["chat.completion"] = attrs.field(default="chat.completion", kw_only=True)
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: UsageBody
    timings: Timings
    system_fingerprint: str
    dropped_messages: int | None = _left_out_if_none()
    service_tier: str | None = _left_out_if_none()


@attrs.frozen
class CompletionChoice:
    """The continuation of one prompt.

    Args:
        stop_reason: The matching stop string, under vLLM's name; null if none matched.
    """

    index: int
    text: str
    finish_reason: str
    stop_reason: str | None
    logprobs: dict[str, Any] | None = None


@attrs.frozen
class Completion:
    """The response body of `POST /v1/completions`."""

    id: str
    object: Literal["text_completion"] = attrs.field(default="text_completion", kw_only=True)
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: UsageBody
    timings: Timings
    system_fingerprint: str


@attrs.frozen
class UpdateRequest:
    """The body of `POST /v1/chat/completions/{id}`."""

    metadata: Any
