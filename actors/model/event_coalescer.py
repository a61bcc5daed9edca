"""When the events of a worker's steps go to the Trio thread: at once, unless the steps are very fast."""

from __future__ import annotations

import time
from collections.abc import Callable

from greenroom.schemas.events import InferenceEvent, ReasoningDelta, TextDelta

Events = list[tuple[str, InferenceEvent]]

MIN_INTERVAL = 0.005
"""Seconds between two reports that say nothing but more text: nobody reads faster, and each wakes a thread
that takes the interpreter from the worker for up to a tenth of a step of 2 ms."""

_TEXT = (TextDelta, ReasoningDelta)


class EventCoalescer:
    """Reports events in order; mere text waits until the last report is `MIN_INTERVAL` ago, no other does.

    Args:
        report: Takes the events of one or several steps.
        clock: Seconds that only rise.
    """

    def __init__(self, report: Callable[[Events], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._pending: Events = []
        self._reported = -MIN_INTERVAL

    def add(self, events: Events) -> None:
        """Take the events of a step; another step must follow if they are mere text."""
        self._pending = self._pending + events if self._pending else events
        if not self._pending:
            return
        due = self._clock() - self._reported >= MIN_INTERVAL
        if due or not all(isinstance(event, _TEXT) for _, event in events):
            self.flush()

    def flush(self) -> None:
        """Report what is pending: call it before anything that takes longer than a step."""
        if self._pending:
            events, self._pending = self._pending, []
            self._report(events)
            if isinstance(events[-1][1], _TEXT):
                self._reported = self._clock()
