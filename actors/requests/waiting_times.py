"""Times that a request waits before its model takes it, by what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import attrs

from greenroom.schemas.events.explanation import Waits

Awaited = Literal["loading", "model", "slot", "preparing"]


class WaitingTimes:
    """Sums the seconds of a request's waits.

    Args:
        clock: Clock in seconds, with any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._awaited: Awaited | None = None
        self._waits = Waits()

    def wait_for(self, awaited: Awaited) -> None:
        """Begin to wait for something else; time before the first call counts for the first wait."""
        if self._awaited is not None:
            self._add(self._awaited)
        elif awaited == "preparing":  # served at once
            self._add("slot")
        self._awaited = awaited

    def end(self) -> Waits:
        if self._awaited is not None:
            self._add(self._awaited)
        return self._waits

    def _add(self, awaited: Awaited) -> None:
        now = self._clock()
        seconds = getattr(self._waits, awaited) + now - self._since
        self._waits, self._since = attrs.evolve(self._waits, **{awaited: seconds}), now
