"""A command of the program at a real terminal, and what a person does there."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from typing import Any

from greenroom.tests.support.servers.bounded_waits import PATIENCE
from greenroom.tests.support.servers.forked_commands import ForkedProcess
from greenroom.tests.support.servers.server_processes import GREENROOM, may_be_forked


class Terminal:
    """A process whose stdin, stdout and stderr are a terminal.

    Args:
        variables: Further environment variables.
    """

    def __init__(self, *arguments: str, **variables: str) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", **variables}
        self._fd, theirs = pty.openpty()
        self._process: subprocess.Popen[bytes] | ForkedProcess
        if may_be_forked(variables):
            self._process = ForkedProcess(arguments, environment, terminal=theirs)
        else:
            code = f"import os, sys; os.login_tty({theirs}); os.execv(sys.argv[1], sys.argv[1:])"
            command = [sys.executable, "-c", code, *GREENROOM, *arguments]
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs])
            os.close(theirs)
        self.pid = self._process.pid
        self.shown = ""

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
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            if number:
                self._process.send_signal(number)
            time.sleep(0.5 if number else 0.02)
            if select.select([self._fd], [], [], 0)[0]:
                with suppress(OSError):  # the other side is closed
                    self.shown += os.read(self._fd, 4096).decode("utf-8", "replace")
        self.modes_at_end = self.modes()
        return self._process.wait()

    def close(self) -> None:
        """Kill the process, if it still runs, and close the terminal."""
        with self._process as process:
            process.kill()
        os.close(self._fd)
