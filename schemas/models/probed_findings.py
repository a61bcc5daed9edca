"""The findings of a probe as people and programs read them."""

from __future__ import annotations

import datetime
from typing import Any

import attrs

from greenroom.schemas.models.capabilities import ProbedCapabilities


def findings_of(record: ProbedCapabilities) -> dict[str, Any]:
    """Return a record's fields; its time in ISO 8601, and without the fingerprint of the files."""
    fields = attrs.asdict(record, filter=lambda field, _: field.name != "files")
    probed_at = datetime.datetime.fromtimestamp(record.probed_at, datetime.UTC)
    return {**fields, "probed_at": probed_at.isoformat(timespec="seconds")}
