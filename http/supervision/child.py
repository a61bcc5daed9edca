"""The supervised server as a process: its start, its signs of life and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from greenroom.http.supervision.beat import parse_beat
from greenroom.http.supervision.inheritance import ParentLink, variables_for
from greenroom.http.supervision.restart_policy import ChildEnd
from greenroom.http.supervision.silence import Silence, SilenceLimits

_READ_BYTES = 65536
_LONGEST_LINE = 65536
"""Bytes without a newline after which a line is given up."""


class Child:
    """A running child, in a process group of its own: Ctrl-C at the terminal reaches only the parent.

    Args:
        command: Program and arguments.
        sockets: Listening sockets to hand down.
        limits: Limits on silence.
        left_out: Names of the models that it must not load before a request wants them.
        restarts: Number of processes that died before.

    Attributes:
        pipe: Descriptor of the pipe's reading end.
        pipe_ended: True once nobody writes into the pipe any more.
        silence: Time since the last sign of life.

    Raises:
        OSError: The process cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        sockets: tuple[socket.socket, ...],
        limits: SilenceLimits,
        left_out: tuple[str, ...],
        restarts: int,
    ) -> None:
        self.pipe, write = os.pipe()
        os.set_blocking(self.pipe, False)
        link = ParentLink(write, limits.interval, left_out, restarts)
        try:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **variables_for(link, sockets)},
                pass_fds=(write, *(sock.fileno() for sock in sockets)),
                process_group=0,
            )
        except OSError:
            os.close(self.pipe)
            raise
        finally:
            os.close(write)
        self._unread = b""
        self.pipe_ended = False
        self._served_since: float | None = None
        self.silence = Silence(limits, time.monotonic())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def serves(self) -> bool:
        """True once it has begun to accept requests."""
        return self._served_since is not None

    def read_beats(self) -> None:
        """Read what is in the pipe."""
        while read := self._read():
            *lines, self._unread = (self._unread + read).split(b"\n")
            self._unread = self._unread[-_LONGEST_LINE:]
            for beat in filter(None, map(parse_beat, lines)):
                self.silence.record(beat)
                if beat.stage == "serving" and self._served_since is None:
                    self._served_since = time.monotonic()

    def poll(self) -> ChildEnd | None:
        """Return its end, and end the processes that it has left behind; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        self.read_beats()
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        served = None if self._served_since is None else time.monotonic() - self._served_since
        return ChildEnd(status, served, self.silence.beat.busy)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def _read(self) -> bytes:
        try:
            read = os.read(self.pipe, _READ_BYTES)
        except BlockingIOError:
            return b""
        self.pipe_ended = not read
        return read
