"""Reasoning switches in the text of messages."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.adapters.thinking.switches import ThinkingMeans
from greenroom.schemas.messages.messages import Message, TextPart


def add_thinking_words(messages: Sequence[Message], thinking: ThinkingMeans) -> list[Message]:
    """Return the messages with the text that switches reasoning."""
    told = list(messages)
    if thinking.system:
        text = thinking.system
        if told and told[0].role == "system":
            text = f"{text}\n\n{told.pop(0).text}".rstrip()
        told.insert(0, Message("system", (TextPart(text),)))
    elif thinking.blank_system and not (told and told[0].role == "system"):
        told.insert(0, Message("system", (TextPart(""),)))
    if thinking.user:
        _add_user_word(told, thinking.user)
    return told


def _add_user_word(messages: list[Message], word: str) -> None:
    for at in reversed(range(len(messages))):
        message = messages[at]
        if message.role == "user":
            messages[at] = attrs.evolve(message, content=(TextPart(f"{message.text} {word}"),))
            return
