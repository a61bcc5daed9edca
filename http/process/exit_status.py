"""The exit statuses of `greenroom`: `notes/exit-statuses.md` explains each."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Statuses with which a process ends."""

    DONE = 0
    """All that was accepted has been answered, or a command has done what it was asked for."""
    FAILED = 1
    """It could not."""
    BAD_SETTING = 2
    """A setting, an option or an argument cannot be used."""
    DEVICE_LOST = 70
    """The GPU takes no more work of this process; another process may have better luck."""
    FORCED = 75
    """The process would not end in time, or a thread of it hangs."""
    INTERRUPTED = 130
    """A second Ctrl-C."""


def status_of_signal(number: int) -> int:
    """Return the status of a command that a signal has ended, as shells have it."""
    return 128 + number
