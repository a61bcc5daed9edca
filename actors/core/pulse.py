"""Signs of life of a job: given on its thread, counted on the Trio thread."""

from __future__ import annotations

SILENT_TICKS = 8
"""Looks in a row that see no sign of life before a job counts as hung. What is counted is the looks, not the
time between them: after a process was stopped, or its machine asleep, one look comes late and no more."""


class Pulse:
    """What a job tells of itself; a job that has told nothing yet is at work.

    Written by one thread and read by another, one attribute at a time.
    """

    def __init__(self) -> None:
        self._beats = 0
        self._resting = False
        self._seen = -1
        self._silent = 0

    def beat(self) -> None:
        """Tell that the job is at work and has come further."""
        self._resting = False
        self._beats += 1

    def rest(self) -> None:
        """Tell that the job waits for something that is no work of its own, for as long as that takes."""
        self._resting = True

    def look(self) -> bool:
        """Count a look; return whether the job has been silent for too many. From the Trio thread only."""
        beats = self._beats
        silent = not self._resting and beats == self._seen
        self._seen, self._silent = beats, self._silent + 1 if silent else 0
        return self._silent >= SILENT_TICKS
