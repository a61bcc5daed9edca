"""Batching of a worker's events for the Trio thread: sent at once, unless the steps are very fast."""

from __future__ import annotations

import time
from collections.abc import Callable

from greenroom.schemas.events.events import InferenceEvent, ReasoningDelta, TextDelta

Events = list[tuple[str, InferenceEvent]]

MIN_INTERVAL = 0.005
"""Minimum seconds between two reports of text alone. Nobody reads faster, and each report wakes a thread that
takes the interpreter from the worker for up to a tenth of a 2 ms step."""

_TEXT = (TextDelta, ReasoningDelta)


class EventCoalescer:
    """Reporter of events in order; text deltas wait for `MIN_INTERVAL` since the last report, others do not.

    Args:
        report: Callback for the events of one or several steps.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, report: Callable[[Events], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._pending: Events = []
        self._reported = -MIN_INTERVAL

    def add(self, events: Events) -> None:
        """Add the events of a step; if they are only text, another step or `flush` must follow."""
        self._pending = self._pending + events if self._pending else events
        if not self._pending:
            return
        due = self._clock() - self._reported >= MIN_INTERVAL
        if due or not all(isinstance(event, _TEXT) for _, event in events):
            self.flush()

    def flush(self) -> None:
        """Report pending events; call it before anything that takes longer than a step."""
        if self._pending:
            events, self._pending = self._pending, []
            self._report(events)
            if isinstance(events[-1][1], _TEXT):
                self._reported = self._clock()
