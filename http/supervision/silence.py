"""Measurement of a child's silence."""

from __future__ import annotations

import attrs

from greenroom.http.supervision.beat import Beat


@attrs.frozen
class SilenceLimits:
    """Seconds without a sign of life after which a child counts as hung.

    Args:
        serving: Limit while it serves and while it ends.
        importing: Limit while it starts, and while a library is imported.
    """

    serving: float = 10.0
    importing: float = 60.0

    def of(self, beat: Beat) -> float:
        return self.importing if beat.importing or beat.stage == "starting" else self.serving

    @property
    def interval(self) -> float:
        """Seconds between two signs of life, and between two checks."""
        return min(1.0, self.serving / 10, self.importing / 10)


class Silence:
    """The time since a child's last sign of life, as far as its watcher was awake.

    After the watcher itself was stopped, or its machine slept, a check is late: then two intervals count at
    most, since the child may have been stopped too.

    Args:
        now: Present time in seconds, by a clock that never goes back.
    """

    def __init__(self, limits: SilenceLimits, now: float) -> None:
        self._limits = limits
        self._checked = now
        self._beat = Beat()
        self._seconds = 0.0

    @property
    def beat(self) -> Beat:
        return self._beat

    @property
    def seconds(self) -> float:
        """Seconds without a sign of life, up to the last check."""
        return self._seconds

    def record(self, beat: Beat) -> None:
        self._beat, self._seconds = beat, 0.0

    def is_too_long(self, now: float) -> bool:
        """Count the time since the last check, and return whether the child counts as hung."""
        self._seconds += min(now - self._checked, 2 * self._limits.interval)
        self._checked = now
        return self._seconds >= self._limits.of(self._beat)
