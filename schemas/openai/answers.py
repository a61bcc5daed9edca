"""What the OpenAI endpoints answer at once: every field that the API requires, null included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import attrs

from greenroom.schemas.events import Finished


def _if_any() -> Any:
    return attrs.field(default=None, metadata={"optional": True})


@attrs.frozen
class UsageBody:
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


def usage_body(ends: Iterable[Finished], choices: int = 1) -> UsageBody:
    """The sum over the prompts of a request.

    Args:
        ends: Of all its choices.
        choices: Of each prompt, which counts once.
    """
    ends = list(ends)
    usages = [end.usage for end in ends]
    prompts = [end.usage for end in ends if end.index % choices == 0]
    prompt, generated = sum(usage.prompt for usage in prompts), sum(usage.generated for usage in usages)
    return UsageBody(
        prompt_tokens=prompt,
        completion_tokens=generated,
        total_tokens=prompt + generated,
        prompt_tokens_details={"cached_tokens": sum(usage.cached for usage in prompts), "audio_tokens": 0},
        completion_tokens_details={
            "reasoning_tokens": sum(usage.reasoning for usage in usages),
            "audio_tokens": 0,
            "accepted_prediction_tokens": sum(usage.accepted for usage in usages),
            "rejected_prediction_tokens": sum(usage.drafted - usage.accepted for usage in usages),
        },
    )


@attrs.frozen
class ChatMessage:
    """The assistant's answer. Keys that only some answers have are left out when they are None."""

    role: Literal["assistant"] = attrs.field(default="assistant", kw_only=True)
    content: str | None
    refusal: str | None = None
    annotations: tuple[Any, ...] = ()
    reasoning_content: str | None = _if_any()
    reasoning: str | None = _if_any()
    tool_calls: tuple[dict[str, Any], ...] | None = _if_any()


@attrs.frozen
class ChatChoice:
    """One answer."""

    index: int
    message: ChatMessage
    finish_reason: str
    logprobs: Any = None


@attrs.frozen
class ChatCompletion:
    """The whole answer of `POST /v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"] = attrs.field(default="chat.completion", kw_only=True)
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: UsageBody
    system_fingerprint: str


@attrs.frozen
class CompletionChoice:
    """The continuation of one prompt."""

    index: int
    text: str
    finish_reason: str
    logprobs: dict[str, Any] | None = None


@attrs.frozen
class Completion:
    """The whole answer of `POST /v1/completions`."""

    id: str
    object: Literal["text_completion"] = attrs.field(default="text_completion", kw_only=True)
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: UsageBody
    system_fingerprint: str


def body(answer: ChatCompletion | Completion | UsageBody) -> dict[str, Any]:
    """An answer as JSON has it."""
    return attrs.asdict(
        answer, filter=lambda field, value: value is not None or not field.metadata.get("optional", False)
    )
