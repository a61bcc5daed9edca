"""Commands that compute in this process: how they end at signals, and whatever hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import NoReturn

import attrs
import click
import trio

from greenroom.actors.system import System, open_system
from greenroom.http.process.exit_status import ExitStatus, status_of_signal
from greenroom.http.process.problem_line import print_problem
from greenroom.schemas.settings.settings import Settings

CLOSE_SECONDS = 5.0
"""For a command's models and threads to end: nobody waits for them but the user."""
FORCED_END_SECONDS = CLOSE_SECONDS + 2.0
"""From the first signal to the end of a process whose main thread is stuck, as at a pipe that is not read."""

_SHOW_CURSOR = b"\x1b[?25h"


def run_command(run: Callable[[], Awaitable[int]]) -> NoReturn:
    """Run what a command does, and end the process.

    SIGINT, SIGTERM and SIGHUP cancel it, and a second one ends the process at once; the exit status is then
    that of the signal. A `ClickException` is told in a line, and ends it.

    Args:
        run: Returns the exit status.
    """
    signals = _Signals()
    _end(trio.run(signals.run, run), at_once=signals.received)


def run_with_system(settings: Settings, run: Callable[[System], Awaitable[int]]) -> NoReturn:
    """Run what a command does with a system of its own, and end the process even if a thread of it hangs.

    See `run_command`; what is cancelled is `run`, and the system closes behind it.
    """
    closing = min(settings.shutdown_timeout, CLOSE_SECONDS)
    signals = _Signals()

    async def opened() -> tuple[int, bool]:
        async with open_system(attrs.evolve(settings, shutdown_timeout=closing)) as system:
            status = await signals.run(lambda: run(system))
        if status == ExitStatus.FAILED and system.device_lost.is_set():
            status = ExitStatus.DEVICE_LOST
        return status, system.hung or system.device_lost.is_set()

    status, hung = trio.run(opened)
    _end(status, at_once=hung or signals.received)


class _Signals:
    """What the signals that end programs do to one command. They may come at any moment from now on."""

    def __init__(self) -> None:
        self._first = 0
        self._received = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        # It begins now: a signal handler that starts threads may interrupt what holds the lock for that.
        threading.Thread(target=self._end_when_overdue, name="forced end", daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._on_signal)

    @property
    def received(self) -> bool:
        """Whether there was one."""
        return self._received.is_set()

    async def run(self, run: Callable[[], Awaitable[int]]) -> int:
        """Return the exit status of `run`, or of the signal that cancelled it."""
        self._token = trio.lowlevel.current_trio_token()
        if self.received:
            self._scope.cancel("a signal came before")
        status: int = ExitStatus.DONE
        with self._scope:
            try:
                status = await run()
            except click.ClickException as problem:
                print_problem(problem)
                status = problem.exit_code
        return self._status if self.received else status

    @property
    def _status(self) -> int:
        return status_of_signal(self._first)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            _leave_at_once(self._status)
        self._first = number
        self._received.set()
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel, "a signal")

    def _end_when_overdue(self) -> None:
        self._received.wait()
        time.sleep(FORCED_END_SECONDS)
        _leave_at_once(self._status)


def _end(status: int, *, at_once: bool) -> NoReturn:
    """End the process.

    Args:
        at_once: A thread may still work or read: an interpreter that takes itself apart around it aborts.
    """
    if not at_once:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _leave_at_once(status)


def _leave_at_once(status: int) -> NoReturn:
    """End the process now; progress bars hide the cursor, and whoever shows one may not get to end it."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(descriptor):
                os.write(descriptor, _SHOW_CURSOR)
    os._exit(status)
