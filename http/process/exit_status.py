"""Exit statuses of `greenroom`, explained in `notes/exit-statuses.md`."""

from __future__ import annotations

from enum import IntEnum


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
