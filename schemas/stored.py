"""What is kept of answers and conversations after their request has ended.

Everything is plain data. What is only passed on, as items and whole answers are, is JSON text that the store
never reads; times are Unix times in seconds. What is stored belongs to its `owner` and is unknown to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

EVERYBODY = ""
"""The owner of everything while there are no keys."""

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNFINISHED: tuple[ResponseStatus, ...] = ("queued", "in_progress")

Order = Literal["asc", "desc"]
"""In which order a list is read: as it was stored, or the other way round."""
MAX_PAGE = 100
"""Entries of a page of a list at most."""


@attrs.frozen
class StoredItem:
    """A message, call, result or thought of a conversation: its id, and JSON text with all of it."""

    id: str
    body: str


@attrs.frozen
class StoredResponse:
    """An answer of the Responses API, and the turn that it is of a conversation.

    Args:
        conversation: To which its items are appended, if to one.
        parent: The response that it continues, if one; never together with a conversation.
        body: The response object, JSON text.
        input: What this request brought, without what came before it.
        raw: The model's text as it was generated, so that the next prompt can begin with it unchanged.
        events: The events of a background response, JSON text.
        system_prompt: The operator's, if its conversation began with it, empty for none; kept only by the
            first turn that it was settled for.
    """

    id: str
    owner: str
    model: str
    status: ResponseStatus
    created: float
    body: str
    completed: float | None = None
    background: bool = False
    conversation: str | None = None
    parent: str | None = None
    input: tuple[StoredItem, ...] = ()
    output: tuple[StoredItem, ...] = ()
    raw: str = ""
    events: str | None = None
    system_prompt: str | None = None


@attrs.frozen
class StoredTurn:
    """What one response added to a history, or one item that was added to a conversation without one."""

    items: tuple[StoredItem, ...]


@attrs.frozen
class StoredConversation:
    """A conversation; its items are read apart."""

    id: str
    owner: str
    created: float
    metadata: Mapping[str, str] = {}


@attrs.frozen
class StoredCompletion:
    """A chat completion that was stored.

    Args:
        messages: Those of the request, JSON text of an array.
        body: The completion object, JSON text.
    """

    id: str
    owner: str
    created: float
    model: str
    messages: str
    body: str
    metadata: Mapping[str, str] = {}
