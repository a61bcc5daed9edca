"""Store messages of the audit, a part of `greenroom.schemas.protocols.store_protocol`."""

from __future__ import annotations

import attrs

from greenroom.schemas.audit import AuditRow, Ending, KeyUsage


@attrs.frozen
class SaveAudit:
    """Store rows, and add them to the usage of their keys. Reply: Committed.

    A row that is stored already is left as it is, so that a message can be repeated.
    """

    rows: tuple[AuditRow, ...]


@attrs.frozen
class ListAudit:
    """List the latest rows that match every filter, the newest first. Reply: AuditPage.

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


@attrs.frozen
class ListUsage:
    """List the usage by day and key, the latest day first. Reply: UsageList.

    Args:
        since: First day in UTC, as `2026-11-24`.
        owners: Ids of keys; empty for all.
        limit: Maximum number of entries.
    """

    since: str = ""
    owners: tuple[str, ...] = ()
    limit: int = 1_000


@attrs.frozen
class UsageList:
    """The usage of keys by day."""

    entries: tuple[KeyUsage, ...]
