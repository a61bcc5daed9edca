"""Exit statuses of `greenroom` (`notes/exit-statuses.md`), the line of an error, and a closed terminal."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from enum import Enum, IntEnum
from pathlib import Path

import click


class ExitStatus(IntEnum):
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


def print_problem(problem: click.ClickException) -> None:
    message = " ".join(problem.format_message().split())
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    click.echo(f"greenroom: {message}{hint}", err=True)


NAME = "greenroom"


def program_name() -> str:
    """Return `greenroom` if the shell finds this program under that name, else the path that started it.

    `make run` starts it from `.venv/bin`, which is not on the PATH.
    """
    started = Path(sys.argv[0])
    found = shutil.which(NAME)
    if started.name != NAME or (found is not None and Path(found).resolve() == started.resolve()):
        return NAME
    path = os.path.relpath(started)
    return path if not path.startswith("..") else str(started.absolute())


class Terminal:
    """The terminal at which this process was started; none if the process ignores its end, as under nohup."""

    def __init__(self) -> None:
        self._watched = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    @property
    def is_gone(self) -> bool:
        return self._watched and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
