"""Heartbeats of a job: sent by its thread, checked by the Trio thread."""

from __future__ import annotations

SILENT_TICKS = 8
"""Consecutive checks without a heartbeat after which a job counts as hung. The checks are counted, not the
time: after a process was stopped or its machine slept, a single check is late."""


class Heartbeat:
    """The heartbeats of a job; a job that has sent none yet counts as active.

    One thread writes it and another reads it, one attribute at a time.
    """

    def __init__(self) -> None:
        self._beats = 0
        self._paused = False
        self._seen = -1
        self._silent = 0

    def beat(self) -> None:
        """Report that the job is active and has made progress."""
        self._paused = False
        self._beats += 1

    def pause(self) -> None:
        """Report that the job waits for something external, for an unlimited time."""
        self._paused = True

    def check(self) -> bool:
        """Count a check, and return whether the job counts as hung. For the Trio thread only."""
        beats = self._beats
        silent = not self._paused and beats == self._seen
        self._seen, self._silent = beats, self._silent + 1 if silent else 0
        return self._silent >= SILENT_TICKS
