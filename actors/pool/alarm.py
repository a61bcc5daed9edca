"""An alarm of an actor, for one time at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio


class Alarm:
    """The alarm; a later time than the present one waits until that has passed.

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
