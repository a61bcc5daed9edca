"""A command of the program at a real terminal, and what a person does there."""

from __future__ import annotations

import os
import pty
import select
import signal
import termios
import time
from contextlib import suppress
from typing import Any

from greenroom.tests.support.servers.bounded_waits import PATIENCE
from greenroom.tests.support.servers.server_processes import GREENROOM


class Terminal:
    """A process whose stdin, stdout and stderr are a terminal.

    Args:
        variables: Further environment variables.
    """

    def __init__(self, *arguments: str, **variables: str) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", **variables}
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(GREENROOM[0], [*GREENROOM, *arguments], environment)
        self.shown = ""
        self._status: int | None = None

    def write(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, text: str, seconds: float = 300) -> str:
        """Return the next output up to `text`."""
        shown, deadline = "", time.monotonic() + seconds
        while text not in shown:
            assert time.monotonic() < deadline, self.shown + shown
            if select.select([self._fd], [], [], 0.1)[0]:
                shown += os.read(self._fd, 4096).decode("utf-8", "replace")
        self.shown += shown
        return shown

    def modes(self) -> list[Any]:
        """Return the terminal's attributes (`termios`)."""
        return termios.tcgetattr(self._fd)

    def end(self, number: signal.Signals | None = None) -> int:
        """Return the exit status; repeat the signal until the end, since readline may miss an early one."""
        deadline = time.monotonic() + PATIENCE
        while not self._reap():
            assert time.monotonic() < deadline, self.shown
            if number:
                os.kill(self.pid, number)
            time.sleep(0.5 if number else 0.02)
            if select.select([self._fd], [], [], 0)[0]:
                with suppress(OSError):  # the other side is closed
                    self.shown += os.read(self._fd, 4096).decode("utf-8", "replace")
        self.modes_at_end = self.modes()
        return os.waitstatus_to_exitcode(self._status or 0)

    def close(self) -> None:
        """Kill the process, if it still runs, and close the terminal."""
        if not self._reap():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def _reap(self) -> bool:
        """Return whether the process has ended."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if ended else None
        return self._status is not None
