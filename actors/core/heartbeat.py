"""Heartbeats of a job: sent by its thread, checked by the Trio thread."""

from __future__ import annotations

from collections.abc import Callable

SILENT_TICKS = 8
"""Consecutive checks without a heartbeat after which a job counts as hung. The checks are counted, not the
time: after a process was stopped or its machine slept, a single check is late."""


class Heartbeat:
    """The heartbeats of a job; a job that has sent none yet counts as active.

    One thread writes it and another reads it, one attribute at a time.

    Args:
        on_active: Callback of the job's thread: with True before it works again, with False once it pauses.
    """

    def __init__(self, on_active: Callable[[bool], None] | None = None) -> None:
        self._on_active = on_active
        self._beats = 0
        self._paused = False
        self._seen = -1
        self._silent = 0

    def beat(self) -> None:
        """Report that the job is active and has made progress."""
        if self._paused:
            self._set_paused(False)
        self._beats += 1

    def pause(self) -> None:
        """Report that the job waits for something external, for an unlimited time."""
        if not self._paused:
            self._set_paused(True)

    @property
    def paused(self) -> bool:
        """True while the job waits for something external."""
        return self._paused

    def check(self, patience: int = 1) -> bool:
        """Count a check, and return whether the job counts as hung. For the Trio thread only.

        Args:
            patience: Multiple of `SILENT_TICKS` after which it does.
        """
        beats = self._beats
        silent = not self._paused and beats == self._seen
        self._seen, self._silent = beats, self._silent + 1 if silent else 0
        return self._silent >= SILENT_TICKS * patience

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        if self._on_active is not None:
            self._on_active(not paused)
