"""An actor's alarm, which is set to one time only."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio


class Alarm:
    """An alarm that calls a function at a time; setting a later time does not postpone it.

    Args:
        ring: Callback at the time; must not block.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at: float | None = None

    def set(self, at: float | None, nursery: trio.Nursery) -> None:
        """Ring at this time, by `time.monotonic()`, unless the alarm rings sooner; None does nothing."""
        if at is not None and (self._at is None or at < self._at):
            self._at = at
            nursery.start_soon(self._wait, at)

    async def _wait(self, at: float) -> None:
        await trio.sleep(max(0.0, at - time.monotonic()))
        if self._at == at:
            self._at = None
        self._ring()
