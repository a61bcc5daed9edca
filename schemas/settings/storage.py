"""Settings of stored responses."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.setting_fields import setting


@attrs.frozen(slots=False)
class Storage:
    """Settings of stored responses."""

    db: str | None = setting(
        None,
        "Database file of responses and conversations, or `:memory:` (default: `greenroom.db` in the user's "
        "data folder).",
    )
    store_responses: bool = setting(
        True, "Store responses, conversations and completions if clients request it."
    )
    store_retention_days: float = setting(
        30.0, "Days after which unused stored data is deleted; inf keeps it.", above=0
    )
    store_max_bytes: int | None = setting(
        None, "Largest database, in bytes; storing more is a 507 (default: no limit).", low=1
    )
