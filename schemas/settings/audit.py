"""Settings of the audit."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.setting_fields import setting


@attrs.frozen(slots=False)
class Audit:
    """Settings of the audit: one row in the database for each request."""

    audit: bool = setting(
        True, "Keep a row for each request in the database: who, when, how long, how many tokens."
    )
    audit_content: bool = setting(
        False, "Keep the beginning of each request's body and of its answer in the audit, too."
    )
    audit_days: float = setting(
        30.0, "Days after which a row of the audit is deleted; inf keeps it.", above=0
    )
    audit_rows: int = setting(1_000_000, "Most rows of the audit; the oldest are deleted.", low=1)
