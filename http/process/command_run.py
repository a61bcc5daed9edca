"""Execution of commands that compute in this process, with signal handling and a forced end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

import attrs
import click
import trio

from greenroom.actors.engines.engines import Engines
from greenroom.actors.engines.residences import ProbedModels
from greenroom.actors.store.database_file import MEMORY, default_path
from greenroom.actors.store.read_only import read_capabilities
from greenroom.actors.system import System, open_system
from greenroom.http.process.exit_status import ExitStatus, print_problem, status_of_signal
from greenroom.http.process.shutdown import WEIGHT_FILES, raise_descriptor_limit, switch_often
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.settings.settings import Settings

CLOSE_SECONDS = 5.0  # Time limit for a command's models and threads to end, in seconds
FORCED_END_SECONDS = CLOSE_SECONDS + 2.0
"""Seconds from the first signal to the end of a process whose main thread is stuck, e.g. on a full pipe."""

_SHOW_CURSOR = b"\x1b[?25h"


def run_command(run: Callable[[], Awaitable[int]]) -> NoReturn:
    """Run a command, and end the process with its exit status.

    SIGINT, SIGTERM and SIGHUP cancel the command, and a second signal ends the process at once; both result
    in the signal's exit status. A `ClickException` is printed as one line and ends the command.
    """
    signals = _Signals()
    _end(trio.run(signals.run, run), at_once=signals.received)


def run_with_system(
    settings: Settings, run: Callable[[System], Awaitable[int]], *, stores: bool = True
) -> NoReturn:
    """Run a command with its own system, and end the process even if a thread hangs.

    The system stores nothing in the user's data folder, but knows what probes have stored there. Works like
    `run_command`. A signal cancels only `run`; the system then closes normally.

    Args:
        stores: True if it may write into the database of the settings.
    """
    closing = min(settings.shutdown_timeout, CLOSE_SECONDS)
    of_system = attrs.evolve(settings, shutdown_timeout=closing, db=settings.db if stores else None)
    signals = _Signals()
    raise_descriptor_limit(WEIGHT_FILES)
    switch_often()

    async def opened() -> tuple[int, bool]:
        engines = Engines(settings, ProbedModels(lambda: stored_capabilities(settings)))
        async with open_system(of_system, engines=engines) as system:
            status = await signals.run(lambda: run(system))
        if status == ExitStatus.FAILED and system.device_lost.is_set():
            status = ExitStatus.DEVICE_LOST
        return status, system.hung or system.device_lost.is_set()

    status, hung = trio.run(opened)
    _end(status, at_once=hung or signals.received)


def stored_capabilities(settings: Settings) -> tuple[ProbedCapabilities, ...]:
    """Return the findings of earlier probes in the settings' database, by default the user's."""
    if settings.db == MEMORY:
        return ()
    return read_capabilities(default_path() if settings.db is None else Path(settings.db))


class _Signals:
    """Handler of termination signals for one command, installed on creation."""

    def __init__(self) -> None:
        self._first = 0
        self._received = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        # Started now: a signal handler must not start threads, as it may interrupt the holder of their lock.
        threading.Thread(target=self._end_when_overdue, name="forced end", daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(number, self._on_signal)

    @property
    def received(self) -> bool:
        return self._received.is_set()

    async def run(self, run: Callable[[], Awaitable[int]]) -> int:
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
    """End the process. `at_once`: True if a thread may still run: the interpreter's normal shutdown would
    then abort.
    """
    if not at_once:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _leave_at_once(status)


def _leave_at_once(status: int) -> NoReturn:
    """End the process now, with the terminal's cursor visible again, which progress bars hide."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(descriptor):
                os.write(descriptor, _SHOW_CURSOR)
    os._exit(status)
