"""Response bodies of Anthropic's endpoints."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.messages.messages import JsonObject


@attrs.frozen
class UsageBody:
    """Token usage of a request; the prompt's length is the sum of the first three fields."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int]


@attrs.frozen
class MessageBody:
    """The response body of `POST /v1/messages`, also sent in a stream's `message_start` event.

    Args:
        usage: Token usage; None while it is unknown.
        diagnostics: Diagnostics object; omitted unless the client requests it.
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
    """An entry of the list of models; `created_at` is an RFC 3339 timestamp.

    Args:
        capabilities: Anthropic features that the model supports; None, like the limits, if unknown.
        max_input_tokens: Maximum prompt length in tokens.
        max_tokens: Maximum answer length in tokens.
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
    """One page of the list of models."""

    data: tuple[ModelBody, ...]
    has_more: bool
    first_id: str | None
    last_id: str | None
