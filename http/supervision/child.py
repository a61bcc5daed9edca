"""The supervised server as a process: its start, its signs of life and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

import attrs

from greenroom.http.process.exit_status import Restart, restart_after
from greenroom.http.supervision.heartbeat import ParentLink, Silence, SilenceLimits, parse_beat, variables_for

_READ_BYTES = 65536
_LONGEST_LINE = 65536  # Bytes without a newline after which a line is given up


class Child:
    """A running child, in a process group of its own: Ctrl-C at the terminal reaches only the parent.

    Args:
        left_out: Names of the models that it must not load before a request wants them.

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
        """Record the heartbeats that the child has written to its pipe."""
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


STABLE_SECONDS = 60.0  # Seconds of service after which earlier deaths are forgotten
SERVED_DELAYS = (0.0, 0.25, 0.5, 1.0)
"""Seconds before a restart, for the first and later deaths in a row of servers that had begun to serve."""
LONGEST_DELAY = 30.0  # Longest time before a restart of a server that dies before it serves, in seconds


@attrs.frozen
class ChildEnd:
    """The end of a supervised server.

    Args:
        status: Exit status, or the negative number of the signal that killed it.
        served: Seconds for which it accepted requests; None if it never did.
        busy: Names of the models that were loading or computing.
    """

    status: int
    served: float | None = None
    busy: tuple[str, ...] = ()


@attrs.frozen
class StartAgain:
    """The decision to start the server again. `delay`: seconds to wait before; `left_out`: models that it
    must not load before a request wants them.
    """

    delay: float
    left_out: tuple[str, ...]


@attrs.frozen
class GiveUp:
    """The decision to end with the server's exit status."""

    status: int


class RestartPolicy:
    """The decisions about one server, by its exit statuses (`notes/exit-statuses.md`) and its earlier ends.

    A server that dies soon after its start has a cause that will be there again, so the pauses grow; one that
    dies while it serves is started at once, since clients wait. A wrong setting or a fault at the very first
    start ends the parent too, so that the operator sees it.
    """

    def __init__(self) -> None:
        self._has_served = False
        self._deaths = 0
        self._left_out: tuple[str, ...] = ()

    def judge(self, end: ChildEnd) -> StartAgain | GiveUp:
        """Decide about a restart after an end that nobody has asked for."""
        self._has_served = self._has_served or end.served is not None
        restart = Restart.AT_ONCE if end.status < 0 else restart_after(end.status)
        if restart is Restart.NO or (restart is not Restart.AT_ONCE and not self._has_served):
            return GiveUp(end.status)
        if end.served is not None and end.served >= STABLE_SECONDS:
            self._deaths, self._left_out = 0, ()
        self._left_out = tuple(dict.fromkeys((*self._left_out, *end.busy)))
        self._deaths += 1
        return StartAgain(self._delay(end), self._left_out)

    def _delay(self, end: ChildEnd) -> float:
        if end.served is not None:
            return SERVED_DELAYS[min(self._deaths, len(SERVED_DELAYS)) - 1]
        return float(min(2 ** min(self._deaths - 1, 10), LONGEST_DELAY))
