"""A complete answer as the blocks that a stream of it would have had."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from greenroom.http.answering.collecting.collected_answer import AnswerPart, Thought, worded_parts
from greenroom.http.answering.sealing.thought_signature import sign
from greenroom.schemas.messages import TextPart, ToolCall


def answer_blocks(parts: Iterable[AnswerPart], *, hides_thoughts: bool) -> tuple[dict[str, Any], ...]:
    """Return the blocks of an answer, at least one.

    Text that is nothing but white space is left out: clients send blocks back, and Anthropic's API takes none
    without text.

    Args:
        hides_thoughts: Thoughts are sent without their text.
    """
    blocks = [_block(part, hides_thoughts) for part in worded_parts(parts)]
    return tuple(blocks) or (text_block(""),)


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def tool_use_id(call_id: str) -> str:
    """Return the id of a call as Anthropic's clients know it."""
    return f"toolu_{call_id.removeprefix('call_')}"


def _block(part: AnswerPart, hides_thoughts: bool) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return text_block(text)
        case Thought(text):
            signature = sign(text, hidden=hides_thoughts)
            return {"type": "thinking", "thinking": "" if hides_thoughts else text, "signature": signature}
        case ToolCall(call_id, name, arguments):
            return {
                "type": "tool_use",
                "id": tool_use_id(call_id),
                "name": name,
                "input": _arguments(arguments),
            }


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call; none if it was cut before they were complete."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}
