"""Publication of an engine's figures while it works, and when it becomes idle."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

import attrs

from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, Usage
from greenroom.schemas.events.statistics import EngineSnapshot

INTERVAL = 1.0
"""Minimum seconds between two snapshots of a working engine."""


class SnapshotPublisher:
    """Publisher of an engine's snapshots, which adds the usage of the requests that have ended.

    Args:
        report: Callback for snapshots.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self, report: Callable[[EngineSnapshot], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._ended = Usage()
        self._published = -math.inf
        self._changed = True

    def record(self, events: Iterable[tuple[str, InferenceEvent]]) -> None:
        """Record the events of a step."""
        self._changed = True
        for _, event in events:
            if isinstance(event, Finished) and event.index:
                self._ended = self._ended.plus(event.usage)  # the prompt is counted with the first choice
            elif isinstance(event, Finished | Failed) and event.usage is not None:
                self._ended = self._ended.with_request(event.usage)

    def publish(self, read: Callable[[], EngineSnapshot], *, idle: bool) -> None:
        """Publish a snapshot if the engine has become idle, or else if the interval has passed.

        Args:
            read: Function that returns the engine's present figures.
        """
        now = self._clock()
        if not (self._changed if idle else now - self._published >= INTERVAL):
            return
        snapshot = read()
        usage = self._ended.with_request(snapshot.usage)
        self._published, self._changed = now, False
        self._report(attrs.evolve(snapshot, usage=usage))
