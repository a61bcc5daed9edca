"""The policy that replaces crashed threads and decides when the device counts as lost."""

from __future__ import annotations

from enum import Enum

import attrs

from greenroom.engine.device.device_crashes import Crash

MAX_REPLACED = 16
"""Maximum number of replaced threads per process; MLX leaks a native thread for each."""

MAX_REPLACED_FOR_CODE = 8
"""Maximum number of replacements for crashes in code, so that some are left for device crashes."""

FRESH_DEATHS = 2
"""Consecutive fresh threads that crash on the device before it counts as lost."""


@attrs.frozen
class DeviceReport:
    """A job's findings about the device.

    Args:
        crash: Worst crash of the job, including one found later; None if there was none.
        computed: True if a result computed by the device was read.
    """

    crash: Crash | None = None
    computed: bool = False

    def with_crash(self, crash: Crash | None) -> DeviceReport:
        """Return the report, updated with another crash if it is worse."""
        return attrs.evolve(self, crash=max(filter(None, (self.crash, crash)), default=None))


class Verdict(Enum):
    """The decision about a thread whose job has ended."""

    LEND_AGAIN = "lend again"
    REPLACE = "replace"
    LOST = "lost"
    """New threads would not help: the process has to end."""


class Replacements:
    """Counter of replaced threads, which decides about crashed ones.

    Attributes:
        replaced: Number of replaced threads.
        loss: Reason why the device is lost; None while it is not.
    """

    def __init__(self) -> None:
        self.replaced = 0
        self.loss: str | None = None
        self._for_code = 0
        self._fresh_deaths = 0

    def judge(self, report: DeviceReport, *, fresh: bool) -> Verdict:
        """Decide whether to lend a thread again after its job, to replace it, or to give up the device.

        Args:
            fresh: True if no earlier job computed anything on the thread.
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
