"""Points in time as JSON has them in the protocols that write them as text."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def timestamp(seconds: float) -> str:
    """Return a point in time as RFC 3339 writes it, in UTC.

    Args:
        seconds: Unix time.
    """
    second, microseconds = divmod(int(seconds * 1e6), 1_000_000)
    return f"{_second(second)}.{microseconds:06}Z" if microseconds else f"{_second(second)}Z"


@lru_cache(maxsize=16)
def _second(second: int) -> str:
    # Every line of a stream has its time, and thousands of them are of the same second.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
