"""What a conversation's system message says beside the client's words."""

from __future__ import annotations

import attrs

from greenroom.schemas.messages import Message, TextPart
from greenroom.schemas.requests import ChatInput, Verbosity

_SENTENCES: dict[Verbosity, str] = {
    "low": "Keep your answers short.",
    "high": "Answer at length and in detail.",
}
"""What makes a model answer so. `medium` is how it answers by itself."""


class SystemMessages:
    """Completes conversations before they are rendered.

    Args:
        default: System prompt of those that come with none, and began with no other; empty for none.
    """

    def __init__(self, default: str = "") -> None:
        self._default = default

    def default_of(self, chat: ChatInput) -> str | None:
        """Return the operator's prompt of a conversation, empty for none; None if it has its own."""
        if any(message.role == "system" for message in chat.messages):
            return None
        return self._default if chat.system_prompt is None else chat.system_prompt

    def complete(self, chat: ChatInput) -> ChatInput:
        """Return the conversation with all that the model shall be told."""
        messages = chat.messages
        if default := self.default_of(chat):
            messages = (_system(default), *messages)
        sentence = _SENTENCES.get(chat.verbosity)
        if sentence is not None:
            messages = _told(messages, sentence)
        return chat if messages is chat.messages else attrs.evolve(chat, messages=messages)


def _told(messages: tuple[Message, ...], sentence: str) -> tuple[Message, ...]:
    """Return messages whose first one is a system message that ends with a sentence."""
    if not messages or messages[0].role != "system":
        return (_system(sentence), *messages)
    first, *others = messages
    return (attrs.evolve(first, content=(*first.content, TextPart(f"\n\n{sentence}"))), *others)


def _system(text: str) -> Message:
    return Message("system", (TextPart(text),))
