"""Points in time as text, for protocols that write them as RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def timestamp(seconds: float) -> str:
    """Format a point in time as RFC 3339, in UTC.

    Args:
        seconds: Unix time in seconds.
    """
    second, microseconds = divmod(int(seconds * 1e6), 1_000_000)
    return f"{_second(second)}.{microseconds:06}Z" if microseconds else f"{_second(second)}Z"


@lru_cache(maxsize=16)
def _second(second: int) -> str:
    # Cached because every line of a stream has a time, and thousands fall into the same second.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
