"""Which requests belong to one conversation: those that begin with the same question."""

from __future__ import annotations

from greenroom.schemas.requests import ChatInput, InferenceRequest


def conversation_key(request: InferenceRequest) -> str:
    """Return a key of the request's conversation; empty if it is one of its own.

    No protocol names conversations, but every turn repeats the first question.
    """
    if not isinstance(request.input, ChatInput):
        return ""
    opening = next((message for message in request.input.messages if message.role == "user"), None)
    return f"{hash(opening.content):x}" if opening is not None else ""
