"""Points in time as JSON has them in the protocols that write them as text."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Return a point in time as RFC 3339 writes it, in UTC.

    Args:
        seconds: Unix time.
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
