"""Content blocks of a complete response, the same as a stream would have sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from greenroom.http.answering.collecting.collected_answer import AnswerPart, Reasoning, worded_parts
from greenroom.http.answering.reasoning_signature import sign
from greenroom.schemas.messages.messages import TextPart, ToolCall


def answer_blocks(parts: Iterable[AnswerPart], *, hides_reasoning: bool) -> tuple[dict[str, Any], ...]:
    """Return the blocks of a response, at least one.

    Blank text is omitted: clients send blocks back, and Anthropic's API refuses text blocks that are empty.

    Args:
        hides_reasoning: True to send reasoning without its text.
    """
    blocks = [_block(part, hides_reasoning) for part in worded_parts(parts)]
    return tuple(blocks) or (text_block(""),)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use_id(call_id: str) -> str:
    return f"toolu_{call_id.removeprefix('call_')}"


def _block(part: AnswerPart, hides_reasoning: bool) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return text_block(text)
        case Reasoning(text):
            signature = sign(text, hidden=hides_reasoning)
            return {"type": "thinking", "thinking": "" if hides_reasoning else text, "signature": signature}
        case ToolCall(call_id, name, arguments):
            return {
                "type": "tool_use",
                "id": tool_use_id(call_id),
                "name": name,
                "input": _arguments(arguments),
            }


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call; none if it was cut off before they were complete."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}
