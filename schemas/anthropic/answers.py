"""What Anthropic's endpoints answer at once."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.messages import JsonObject


@attrs.frozen
class UsageBody:
    """Tokens of one request; those of its prompt are the sum of the first three."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int]


@attrs.frozen
class MessageBody:
    """The answer of `POST /v1/messages`, complete or as a stream begins it.

    Args:
        usage: None while it is not known.
        diagnostics: Left out unless the client asks for it.
    """

    id: str
    type: Literal["message"] = attrs.field(default="message", kw_only=True)
    role: Literal["assistant"] = attrs.field(default="assistant", kw_only=True)
    model: str
    content: tuple[dict[str, Any], ...]
    stop_reason: str | None
    stop_sequence: str | None
    usage: UsageBody | None
    diagnostics: dict[str, Any] | None = None


@attrs.frozen
class ModelBody:
    """One model; `created_at` is a time as RFC 3339 has it.

    Args:
        capabilities: Which of Anthropic's features it has; like the limits, None if that is not known.
        max_input_tokens: Of a prompt.
        max_tokens: Of an answer.
    """

    type: Literal["model"] = attrs.field(default="model", kw_only=True)
    id: str
    display_name: str
    created_at: str
    capabilities: JsonObject | None = None
    max_input_tokens: int | None = None
    max_tokens: int | None = None
    lifecycle: Literal["active"] = attrs.field(default="active", kw_only=True)


@attrs.frozen
class ModelPage:
    """A part of the list of models."""

    data: tuple[ModelBody, ...]
    has_more: bool
    first_id: str | None
    last_id: str | None
