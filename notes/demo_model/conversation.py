"""One conversation to learn from, and the messages that it is made of."""

from __future__ import annotations

import json
from typing import Any

import attrs

from .spans import Span, joined

Message = dict[str, Any]


@attrs.frozen
class Example:
    """A conversation to learn from.

    Args:
        messages: Everything up to the turn which the model has to write.
        tools: The tools on offer, or None.
        thinking: The template's `enable_thinking`.
        target: What the model should write.
        exemplary: For each earlier assistant message, whether it is worth learning from too.
        spans: The pieces of the target, where they are not all to be learned alike.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    thinking: bool
    target: str
    exemplary: tuple[bool, ...] = ()
    spans: tuple[Span, ...] = ()


def called_message(*calls: dict[str, Any]) -> Message:
    """Return the assistant's message that made these calls."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": f"call_{n}", "type": "function", "function": call} for n, call in enumerate(calls)
        ],
    }


def result_message(text: str) -> Message:
    """Return a tool's answer to a call."""
    return {"role": "tool", "content": text}


def call_text(call: dict[str, Any]) -> str:
    """A call as the template writes it."""
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def spanned(
    messages: list[Message], tools: list[dict[str, Any]] | None, thinking: bool, spans: list[Span]
) -> Example:
    """Return the conversation that ends with these pieces; nothing else in it is worth learning."""
    spoken = sum(message["role"] == "assistant" for message in messages)
    return Example(messages, tools, thinking, joined(spans), (False,) * spoken, tuple(spans))
