"""The audit's row: one for each request, of every protocol and ending."""

from __future__ import annotations

from typing import Literal

import attrs

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
        backend: Backend that computed its answer.
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
    body: str = attrs.field(default="", repr=False)
    answer: str = attrs.field(default="", repr=False)


@attrs.frozen
class KeyUsage:
    """The usage of a key on a day.

    Args:
        day: Date in UTC, as `2026-11-24`.
        owner: Id of the key.
        requests: Number of its requests, refused and failed ones among them.
        refused: Number of those that were refused.
        failed: Number of those that failed or timed out.
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
        model: Public id of the model.
        status: HTTP status.
        ending: End of the request.
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
        """Return whether a row, stored or not, matches every filter."""
        wanted = (
            (self.model, row.model),
            (self.status, row.status),
            (self.ending, row.ending),
        )
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
