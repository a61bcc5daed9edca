"""When the events of a worker's steps go to the Trio thread: at once, unless the steps are very fast."""

from __future__ import annotations

import time
from collections.abc import Callable

from greenroom.schemas.events import InferenceEvent, ReasoningDelta, TextDelta

Events = list[tuple[str, InferenceEvent]]

PACE = 0.005
"""Seconds between two reports that say nothing but more text: nobody reads faster, and each wakes a thread
that takes the interpreter from the worker for up to a tenth of a step of 2 ms."""

_TEXT = (TextDelta, ReasoningDelta)


class EventCoalescer:
    """Reports events in order; mere text waits until that before it is `PACE` old, anything else never does.

    Args:
        report: Takes the events of one or several steps.
        clock: Seconds that only rise.
    """

    def __init__(self, report: Callable[[Events], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._held: Events = []
        self._reported = -PACE

    def add(self, events: Events) -> None:
        """The events of a step, which is followed by another if they are mere text."""
        self._held = self._held + events if self._held else events
        if not self._held:
            return
        if self._clock() - self._reported >= PACE or not all(isinstance(event, _TEXT) for _, event in events):
            self.flush()

    def flush(self) -> None:
        """Report what is held: call it before anything that takes longer than a step."""
        if self._held:
            held, self._held = self._held, []
            self._report(held)
            if isinstance(held[-1][1], _TEXT):
                self._reported = self._clock()
