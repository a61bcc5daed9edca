"""Keys that group the requests of one conversation: requests with the same first user message."""

from __future__ import annotations

from greenroom.schemas.messages.requests import ChatInput, InferenceRequest


def conversation_key(request: InferenceRequest) -> str:
    """Return the key of the request's conversation; empty if the request has no user message.

    No protocol identifies conversations, but every turn repeats the first user message.
    """
    if not isinstance(request.input, ChatInput):
        return ""
    opening = next((message for message in request.input.messages if message.role == "user"), None)
    return f"{hash(opening.content):x}" if opening is not None else ""
