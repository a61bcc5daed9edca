"""Anthropic's feature flags of a model, with all keys of Anthropic's API."""

from __future__ import annotations

from typing import Any

from greenroom.http.anthropic.requests.thinking import ANTHROPIC_EFFORTS
from greenroom.schemas.models.capabilities import CapabilityRecord

_THINKING_TYPES = ("adaptive", "between_tools", "disabled", "enabled")


def chats(record: CapabilityRecord) -> bool:
    return record.model_type in ("text", "vision")


def model_capabilities(
    record: CapabilityRecord, *, supports_reasoning: bool, always_reasons: bool = False
) -> dict[str, Any]:
    """Return the features of a model.

    Args:
        supports_reasoning: True if its chat template supports reasoning.
        always_reasons: True if its reasoning is known not to be switched off.
    """
    asked = chats(record)
    takes_images = asked and "image" in record.inputs
    thoughts = asked and supports_reasoning
    return {
        "batch": _support(False),
        "citations": _support(False),
        "code_execution": _support(False),
        "context_management": {
            **_support(asked),
            "clear_thinking_20251015": _support(asked),
            "clear_tool_uses_20250919": _support(False),
            "compact_20260112": _support(False),
        },
        "effort": {**_support(thoughts), **{effort: _support(thoughts) for effort in ANTHROPIC_EFFORTS}},
        "image_input": _support(takes_images),
        "pdf_input": _support(takes_images),
        "server_tools": {
            **_support(False),
            "code_execution": _support(False),
            "web_search": _support(False),
        },
        "structured_outputs": _support(asked),
        # Every chat model accepts every type; one without reasoning ignores it.
        "thinking": {
            **_support(thoughts),
            "types": {
                name: _support(asked and not (always_reasons and name == "disabled"))
                for name in _THINKING_TYPES
            },
        },
    }


def _support(supported: bool) -> dict[str, bool]:
    return {"supported": supported}
