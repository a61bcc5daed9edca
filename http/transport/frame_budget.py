"""A budget of small WebSocket frames.

An empty frame is six bytes for its sender, but some function calls for the server: a few megabytes of them
would keep it busy for minutes.
"""

from __future__ import annotations

from collections.abc import Callable

_MOST = 500.0
"""Frames that may come at once."""
_PER_SECOND = 100.0
_PAID_BYTES = 64
"""Bytes of payload that pay for a frame."""


class FrameBudget:
    """Counts the frames of one socket; each payload byte and each second pay for some.

    Args:
        clock: Clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = _MOST
        self._filled_at = clock()

    def take(self, size: int) -> bool:
        """Count a frame with `size` bytes of payload; return False once there are too many."""
        now = self._clock()
        paid = (now - self._filled_at) * _PER_SECOND + size / _PAID_BYTES
        self._filled_at = now
        self._left = min(_MOST, self._left + paid) - 1.0
        return self._left >= 0.0
