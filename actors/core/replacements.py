"""Decides which threads are lent again after a crash, and when the device counts as lost."""

from __future__ import annotations

from enum import Enum

import attrs

from greenroom.engine.device.device_crashes import Crash

MAX_REPLACED = 16
"""Threads that may be replaced in a process's life: MLX leaves a native thread behind for each."""

MAX_REPLACED_FOR_CODE = 8
"""How many of them for crashes that are not the device's: no model's code or files can use up the rest."""

FRESH_DEATHS = 2
"""Fresh threads in a row that die of the device before it counts as lost."""


@attrs.frozen
class DeviceReport:
    """What a job has learned of the device.

    Args:
        crash: The worst that it died of, or that came to light behind it.
        computed: Values were read that the device had computed for somebody.
    """

    crash: Crash | None = None
    computed: bool = False

    def with_crash(self, crash: Crash | None) -> DeviceReport:
        """Return the report with a crash that was met, or came to light behind it."""
        return attrs.evolve(self, crash=max(filter(None, (self.crash, crash)), default=None))


class Verdict(Enum):
    """What becomes of a thread whose job has ended."""

    LEND_AGAIN = "lend again"
    REPLACE = "replace"
    LOST = "lost"
    """No thread is worth making any more: the process has to end."""


class Replacements:
    """Counts the threads that are replaced.

    Attributes:
        replaced: So many were.
        loss: Why the device is lost, once it is.
    """

    def __init__(self) -> None:
        self.replaced = 0
        self.loss: str | None = None
        self._for_code = 0
        self._fresh_deaths = 0

    def judge(self, report: DeviceReport, *, fresh: bool) -> Verdict:
        """Decide about a thread.

        Args:
            fresh: No job before has computed anything on it.
        """
        if report.computed:
            self._fresh_deaths = 0
        match report.crash:
            case None:
                return Verdict.LEND_AGAIN
            case Crash.CODE:
                return self._judge_code()
            case Crash.REFUSED:
                return self._lose("the system ignores what this process submits to the GPU")
            case Crash.DEVICE if fresh and not report.computed:
                self._fresh_deaths += 1
        if self._fresh_deaths >= FRESH_DEATHS:
            return self._lose(f"{FRESH_DEATHS} fresh threads in a row died of its errors")
        if self.replaced >= MAX_REPLACED:
            return self._lose(
                f"{MAX_REPLACED} threads were replaced already, and another one died of its errors"
            )
        self.replaced += 1
        return Verdict.REPLACE

    def _judge_code(self) -> Verdict:
        if self._for_code >= MAX_REPLACED_FOR_CODE or self.replaced >= MAX_REPLACED:
            return Verdict.LEND_AGAIN
        self._for_code += 1
        self.replaced += 1
        return Verdict.REPLACE

    def _lose(self, why: str) -> Verdict:
        self.loss = self.loss or why
        return Verdict.LOST
