"""Queries and answers of the routes for operators that show the audit."""

from __future__ import annotations

import attrs

from greenroom.schemas.audit import Ending


@attrs.frozen
class AuditQuery:
    """The query of `GET /admin/audit`; a row must match every filter.

    Args:
        since: Unix time in seconds, or an ISO 8601 time; earlier rows are left out.
        until: Time likewise; rows of that time and later are left out.
        key: Id or name of a key.
        model: Public id of a model.
        status: HTTP status.
        ending: `answered`, `refused`, `cancelled`, `timed_out` or `failed`.
        limit: Maximum number of rows, at most 1,000.
        after: `number` of the last row of the page before.
        follow: `true` for server-sent events of the requests that end from now on.
    """

    since: str | None = None
    until: str | None = None
    key: str | None = None
    model: str | None = None
    status: int | None = None
    ending: Ending | None = None
    limit: int = 100
    after: int | None = None
    follow: bool = False


@attrs.frozen
class UsageQuery:
    """The query of `GET /admin/usage`.

    Args:
        since: First day in UTC, as `2026-11-24`.
        key: Id or name of a key.
    """

    since: str | None = None
    key: str | None = None


@attrs.frozen
class AuditEntry:
    """The row of an ended request.

    Args:
        number: Position in the database; null in events, which come before it is stored.
        id: Id of the request.
        time: Unix time of its arrival, in seconds.
        key: Id of the caller's key; empty if the request was refused before that was known.
        key_name: Name of that key; empty without one.
        protocol: `openai`, `responses`, `anthropic`, `ollama` or `rerank`; empty for other paths.
        route: Method and route; `WS` for a message on a WebSocket.
        status: HTTP status; null if the client left before it was known.
        seconds: Seconds from its arrival to its end.
        queue: Seconds that it waited for the model.
        prefill: Seconds of its prompt.
        decode: Seconds of its answer.
        prompt_tokens: Tokens of the prompt; null if no model has computed anything.
        error: Code of its problem; empty for none.
        background: True if it went on after its response.
        body: Beginning of its body; null unless the audit keeps content.
        answer: Beginning of the raw answer; likewise.
    """

    number: int | None
    id: str
    time: float
    key: str
    key_name: str
    protocol: str
    route: str
    model: str
    backend: str
    status: int | None
    ending: Ending
    seconds: float
    queue: float
    prefill: float
    decode: float
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None
    error: str
    background: bool
    body: str | None
    answer: str | None


@attrs.frozen
class AuditList:
    """The response body of `GET /admin/audit`.

    Args:
        requests: Rows, the newest first.
        has_more: True if older rows match.
        waiting: Number of ended requests that are not written yet.
        lost: Number of rows that could not be kept since the start.
    """

    requests: tuple[AuditEntry, ...]
    has_more: bool
    waiting: int
    lost: int


@attrs.frozen
class UsageEntry:
    """The usage of a key on a day.

    Args:
        day: Date in UTC.
        key: Id of the key; empty for requests that were refused before it was known.
        key_name: Its name.
        requests: Number of requests, refused and failed ones among them.
        refused: Number of refused requests.
        failed: Number of those that failed or timed out.
        seconds: Seconds of prefill and decoding.
    """

    day: str
    key: str
    key_name: str
    requests: int
    refused: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seconds: float


@attrs.frozen
class Usages:
    """The response body of `GET /admin/usage`.

    Args:
        usage: Entries, the latest day first.
    """

    usage: tuple[UsageEntry, ...]
