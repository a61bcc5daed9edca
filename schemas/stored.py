"""Records of answers and conversations that outlive their requests.

All records are plain data. Items and whole answers, which are only passed on, are JSON text that the store
never reads. Times are Unix times in seconds. A record belongs to its `owner` and is unknown to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

EVERYBODY = ""
"""The owner of all records while no API keys exist; later, the admin keys together."""
STRANGERS = "strangers"
"""The owner of what programs of this machine store without a key while others need one; no id of a key."""

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNFINISHED: tuple[ResponseStatus, ...] = ("queued", "in_progress")

Order = Literal["asc", "desc"]
"""The order of a list: ascending is the order of storage."""
MAX_PAGE = 100
"""Maximum number of entries in a page."""


@attrs.frozen
class StoredItem:
    """An item of a conversation (message, call, result or reasoning): its id and its JSON text."""

    id: str
    body: str


@attrs.frozen
class StoredResponse:
    """A response of the Responses API, which may be a turn of a conversation.

    Args:
        conversation: Id of the conversation that its items are appended to, if any.
        parent: Id of the response that it continues, if any; never together with a conversation.
        body: Response object as JSON text.
        input: Input items of this request, without earlier turns.
        raw: The model's unparsed output, so that the next prompt can begin with it unchanged.
        events: Events of a background response as JSON text.
        system_prompt: The operator's system prompt at the conversation's start, empty if there was none;
            stored only with the first turn that determined it.
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
    """A turn of a history: the items of a response, or a single item that was added to a conversation."""

    items: tuple[StoredItem, ...]


@attrs.frozen
class StoredConversation:
    """A conversation, without its items, which other messages read.

    Args:
        latest: Id and status of its latest response, where that was asked for and is stored.
    """

    id: str
    owner: str
    created: float
    metadata: Mapping[str, str] = {}
    latest: tuple[str, ResponseStatus] | None = None


@attrs.frozen
class StoredCompletion:
    """A stored chat completion.

    Args:
        messages: The request's messages as JSON text of an array.
        body: Completion object as JSON text.
    """

    id: str
    owner: str
    created: float
    model: str
    messages: str
    body: str
    metadata: Mapping[str, str] = {}


@attrs.frozen
class ItemPage:
    """A page of items in the requested order. Large items make it shorter than its limit."""

    items: tuple[StoredItem, ...]
    has_more: bool


@attrs.frozen
class Turns:
    """A history, oldest turn first.

    Args:
        left_out: Number of earlier turns omitted because the history is too large to be read whole.
        system_prompt: The operator's system prompt at its start, empty if there was none; None if unknown.
    """

    turns: tuple[StoredTurn, ...]
    left_out: int = 0
    system_prompt: str | None = None


@attrs.frozen
class ConversationPage:
    conversations: tuple[StoredConversation, ...]
    has_more: bool


@attrs.frozen
class CompletionPage:
    """A page of completions in the requested order. Large completions make it shorter than its limit."""

    completions: tuple[StoredCompletion, ...]
    has_more: bool


CALLS = "mcp"
"""The protocol of the audit's rows of calls that requests have made of this server's tools."""

Ending = Literal["answered", "refused", "cancelled", "timed_out", "failed"]


@attrs.frozen
class AuditRow:
    """The record of an ended request; it has no content of the request unless the operator wants that.

    Args:
        time: Unix time of its arrival, in seconds.
        owner: Id of the caller's key.
        route: Method and template of its route; the path, bounded, where no route was reached.
        model: Public id of the model; empty if none was named.
        status: HTTP status; None if the client left before it was known.
        seconds: Time from its arrival to its end.
        queue, prefill, decode: Seconds of these stages, of the prompt that took longest.
        prompt_tokens, cached_tokens, generated_tokens: Sums over its prompts; None if unknown.
        error: Code of its problem; empty if it had none.
        background: True if it went on after its response.
        chosen: Reasons for which its model was chosen among those of a route; empty without one.
        body: Beginning of its body; empty unless the operator lets the audit keep content.
        answer: Beginning of the raw answer; likewise.
    """

    request_id: str
    time: float
    owner: str
    protocol: str
    route: str
    model: str
    status: int | None
    ending: Ending
    seconds: float
    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    error: str = ""
    background: bool = False
    backend: str = "local"
    chosen: str = ""
    body: str = attrs.field(default="", repr=False)
    answer: str = attrs.field(default="", repr=False)


@attrs.frozen
class KeyUsage:
    """The usage of a key on a day.

    Args:
        day: Date in UTC, as `2026-11-24`.
        requests: Number of its requests, refused and failed ones among them.
        seconds: Seconds of prefill and decoding.
    """

    day: str
    owner: str
    requests: int
    refused: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seconds: float


@attrs.frozen
class AuditFilter:
    """A question for the latest rows that match every filter, the newest first.

    Args:
        limit: Maximum number of rows.
        after: Number of the row behind which the page begins; None for the newest.
        since: Unix time in seconds, included.
        until: Unix time in seconds, not included.
        owners: Ids of keys; empty for all.
    """

    limit: int = 100
    after: int | None = None
    since: float | None = None
    until: float | None = None
    owners: tuple[str, ...] = ()
    model: str | None = None
    status: int | None = None
    ending: Ending | None = None

    def includes(self, row: AuditRow) -> bool:
        wanted = ((self.model, row.model), (self.status, row.status), (self.ending, row.ending))
        return (
            (not self.owners or row.owner in self.owners)
            and (self.since is None or row.time >= self.since)
            and (self.until is None or row.time < self.until)
            and all(asked is None or asked == found for asked, found in wanted)
        )


@attrs.frozen
class AuditPage:
    """A page of the audit.

    Args:
        rows: The rows with their numbers in the database.
        has_more: True if older rows match.
    """

    rows: tuple[tuple[int, AuditRow], ...]
    has_more: bool
