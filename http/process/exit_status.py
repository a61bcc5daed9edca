"""Exit statuses of `greenroom`, explained in `notes/exit-statuses.md`."""

from __future__ import annotations

from enum import Enum, IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of the process."""

    DONE = 0
    """The server has answered all accepted requests, or the command has succeeded."""
    FAILED = 1
    """The command has failed."""
    BAD_SETTING = 2
    """A setting, an option or an argument is invalid."""
    DEVICE_LOST = 70
    """The GPU accepts no more work from this process; a new process may work."""
    FORCED = 75
    """The process did not end in time, or a thread hangs."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C twice."""


def status_of_signal(number: int) -> int:
    """Return the exit status of a command that a signal ended, by the convention of shells."""
    return 128 + number


class Restart(Enum):
    """The answer to whether a new process helps after an exit status, in the words of the notes."""

    NO = "no"
    AT_ONCE = "at once"
    AFTER_CORRECTING = "after correcting it"
    AFTER_A_LOOK = "after a look"


_RESTARTS = {
    ExitStatus.DONE: Restart.NO,
    ExitStatus.FAILED: Restart.AFTER_A_LOOK,
    ExitStatus.BAD_SETTING: Restart.AFTER_CORRECTING,
    ExitStatus.DEVICE_LOST: Restart.AT_ONCE,
    ExitStatus.FORCED: Restart.AT_ONCE,
    ExitStatus.INTERRUPTED: Restart.NO,
}


def restart_after(status: int) -> Restart:
    """Return whether a new process helps after an exit status; those of signals, from 128 up, want none."""
    known = next((_RESTARTS[each] for each in ExitStatus if each == status), None)
    return known or (Restart.NO if status > status_of_signal(0) else Restart.AFTER_A_LOOK)
