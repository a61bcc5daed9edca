"""Additions of the server to a conversation's system message."""

from __future__ import annotations

import attrs

from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, Verbosity

_SENTENCES: dict[Verbosity, str] = {
    "low": "Keep your answers short.",
    "high": "Answer at length and in detail.",
}
"""Instructions by verbosity; `medium` is the model's own behavior."""


class SystemMessages:
    """Completes the system messages of conversations before rendering.

    Args:
        default: Default system prompt of conversations without one; empty for none.
    """

    def __init__(self, default: str = "") -> None:
        self._default = default

    def default_of(self, chat: ChatInput) -> str | None:
        """Return the operator's prompt for a conversation, empty for none; None if it has its own."""
        if any(message.role == "system" and not message.is_note for message in chat.messages):
            return None
        return self._default if chat.system_prompt is None else chat.system_prompt

    def complete(self, chat: ChatInput) -> ChatInput:
        """Return the conversation with the default system prompt and the instructions for verbosity."""
        messages = chat.messages
        if default := self.default_of(chat):
            messages = (_system(default), *messages)
        sentence = _SENTENCES.get(chat.verbosity)
        if sentence is not None:
            messages = _told(messages, sentence)
        return chat if messages is chat.messages else attrs.evolve(chat, messages=messages)


def _told(messages: tuple[Message, ...], sentence: str) -> tuple[Message, ...]:
    """Return the messages with a sentence at the end of the leading system message."""
    if not messages or messages[0].role != "system":
        return (_system(sentence), *messages)
    first, *others = messages
    return (attrs.evolve(first, content=(*first.content, TextPart(f"\n\n{sentence}"))), *others)


def _system(text: str) -> Message:
    return Message("system", (TextPart(text),))
