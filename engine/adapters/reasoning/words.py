"""Reasoning switches in the text of messages."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.adapters.reasoning.switches import PromptChanges
from greenroom.schemas.messages.messages import Message, TextPart


def add_prompt_changes(messages: Sequence[Message], changes: PromptChanges) -> list[Message]:
    """Return the messages with the text that switches reasoning."""
    told = list(messages)
    if changes.system:
        text = changes.system
        if told and told[0].role == "system":
            text = f"{text}\n\n{told.pop(0).text}".rstrip()
        told.insert(0, Message("system", (TextPart(text),)))
    elif changes.blank_system and not (told and told[0].role == "system"):
        told.insert(0, Message("system", (TextPart(""),)))
    if changes.user:
        _add_user_word(told, changes.user)
    return told


def _add_user_word(messages: list[Message], word: str) -> None:
    for at in reversed(range(len(messages))):
        message = messages[at]
        if message.role == "user":
            messages[at] = attrs.evolve(message, content=(TextPart(f"{message.text} {word}"),))
            return
