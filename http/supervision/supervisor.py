"""The supervising parent: a small process that keeps a server running on sockets of its own.

It imports neither Trio nor MLX nor structlog, so that it has little that could fail or grow.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import attrs
import click

from greenroom.http.process.exit_status import ExitStatus, Terminal, status_of_signal
from greenroom.http.supervision.child import Child, ChildEnd, GiveUp, RestartPolicy, StartAgain
from greenroom.http.supervision.heartbeat import Beat, SilenceLimits, Systemd
from greenroom.http.transport.bound_sockets import bind_sockets, remove_paths, unix_paths
from greenroom.schemas.settings.setting_groups import LogFormat, LogLevel
from greenroom.schemas.settings.settings import Settings

STOP_RESERVE = 5.0  # Seconds beyond the server's own time limit after which a shutdown is forced
START_PAUSE = 5.0  # Seconds before another try to start a server that could not be started at all
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Supervisor:
    """Keeps one server running until a signal ends it, or its exit status says that no restart helps.

    Args:
        sockets: Listening sockets. They stay open between two processes, so that clients wait and nobody is
            refused.
        stop_seconds: Time limit of a shutdown, in seconds.
        systemd: Receiver of this process's readiness and signs of life.
        scheme: Scheme of the addresses, `http` or `https`.
    """

    def __init__(
        self,
        command: Sequence[str],
        sockets: Sequence[socket.socket],
        stop_seconds: float,
        log: ParentLog,
        systemd: Systemd,
        limits: SilenceLimits,
        scheme: str = "http",
    ) -> None:
        self._command = tuple(command)
        self._sockets = tuple(sockets)
        self._stop_seconds = stop_seconds
        self._log = log
        self._systemd = systemd
        self._limits = limits
        self._policy = RestartPolicy()
        self._received: deque[int] = deque()
        self._deadline: float | None = None
        self._reload_wanted = self._told_ready = False
        self._restarts = 0
        self._addresses = [_shown(sock, scheme) for sock in self._sockets]

    def run(self) -> int:
        """Run the server again and again; return the exit status of the whole."""
        self._terminal = Terminal()
        self._wakeup = _catch(self._received)
        self._log.info("supervising", addresses=self._addresses, pid=os.getpid())
        left_out: tuple[str, ...] = ()
        while True:
            try:
                child = Child(self._command, self._sockets, self._limits, left_out, self._restarts)
            except OSError as error:  # lack of memory after a death, or an upgrade that replaces Python
                if not self._restarts:
                    raise
                self._log.error("server not started", reason=str(error))
                if not self._pause(START_PAUSE):
                    return ExitStatus.DONE
                continue
            self._log.info("server started", pid=child.pid, restarts=self._restarts)
            end = self._watch(child)
            if self._stops:
                return self._status_of(end)
            decision = self._policy.judge(end)
            self._tell(child, end, decision)
            if isinstance(decision, GiveUp):
                return self._status_of(end)
            self._restarts += 1
            left_out = decision.left_out
            if not self._pause(decision.delay):
                return ExitStatus.DONE

    @property
    def _stops(self) -> bool:
        return self._deadline is not None

    def _watch(self, child: Child) -> ChildEnd:
        """Pass signals on, and kill a silent child; return its end."""
        while True:
            awaited = [self._wakeup] if child.pipe_ended else [self._wakeup, child.pipe]
            select.select(awaited, [], [], self._limits.interval)
            child.read_beats()
            _drain(self._wakeup)
            self._tell_systemd(child)
            while self._received:
                self._pass_on(self._received.popleft(), child)
            if self._reload_wanted and child.serves:
                # A process without a handler yet would die of it.
                self._reload_wanted = False
                child.send_signal(signal.SIGHUP)
            if (end := child.poll()) is not None:
                return end
            now = time.monotonic()
            silent = child.silence.is_too_long(now)
            if silent or (self._deadline is not None and now >= self._deadline):
                child.send_signal(signal.SIGKILL)
                event = "server silent" if silent else "shutdown forced"
                self._log.error(event, pid=child.pid, seconds=round(child.silence.seconds, 1))

    def _tell_systemd(self, child: Child) -> None:
        self._systemd.send(Beat("serving"))
        if child.serves and not self._told_ready and not self._stops:
            self._told_ready = True
            self._systemd.tell("READY=1", f"STATUS=Serving on {', '.join(self._addresses)}")

    def _pass_on(self, number: int, child: Child) -> None:
        if number == signal.SIGHUP and not self._terminal.is_gone:
            self._reload_wanted = True
        elif number != signal.SIGCHLD:
            if not self._stops:
                self._begin_stop()
            child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    def _begin_stop(self) -> None:
        self._deadline = time.monotonic() + self._stop_seconds + STOP_RESERVE
        self._systemd.tell("STOPPING=1", "STATUS=Finishing accepted requests")
        # The server closes its own; from then on connections are refused, as after any shutdown.
        for sock in self._sockets:
            sock.close()

    def _pause(self, seconds: float) -> bool:
        """Wait before a restart; return whether to go on, since no signal to end has come."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            select.select([self._wakeup], [], [], min(left, self._limits.interval))
            self._systemd.send(Beat("serving"))
            _drain(self._wakeup)
            while self._received:  # a handler adds to them at any moment
                if self._ends(self._received.popleft()):
                    return False
        return True

    def _ends(self, number: int) -> bool:
        """Return whether a signal asks for the end; a terminal that is gone does."""
        return number in (signal.SIGTERM, signal.SIGINT) or (
            number == signal.SIGHUP and self._terminal.is_gone
        )

    def _tell(self, child: Child, end: ChildEnd, decision: StartAgain | GiveUp) -> None:
        fields: dict[str, Any] = {"pid": child.pid, "status": self._status_of(end)}
        if end.status < 0:
            names = {each.value: each.name for each in signal.Signals}  # those of real time have none
            fields["signal"] = names.get(-end.status, -end.status)
        if end.served is not None:
            fields["served_seconds"] = round(end.served, 1)
        if isinstance(decision, GiveUp):
            self._log.info("server ended", **fields)
        else:
            advice = {"left_out": list(decision.left_out)} if decision.left_out else {}
            self._log.error("server died", **fields, **advice, restart_seconds=decision.delay)
            self._told_ready = False
            self._systemd.tell(f"STATUS=Starting again after status {self._status_of(end)}")

    def _status_of(self, end: ChildEnd) -> int:
        asked = (128 + signal.SIGTERM, 128 + signal.SIGINT)
        if self._stops and end.served is None and end.status in asked:
            return ExitStatus.DONE  # a signal has ended a download before the start
        if end.status >= 0:
            return end.status
        if self._stops:  # a process that is still starting has no requests to finish
            return ExitStatus.DONE if -end.status in (signal.SIGTERM, signal.SIGINT) else ExitStatus.FORCED
        return status_of_signal(-end.status)


def _catch(received: deque[int]) -> int:
    """Collect signals; return a descriptor that is readable after each."""
    read, write = os.pipe()
    for descriptor in (read, write):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    for number in _SIGNALS:
        signal.signal(number, note)
    return read


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _shown(sock: socket.socket, scheme: str) -> str:
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


_LONGEST_LINE = 4000  # Bytes of a line that a pipe takes without waiting, once it takes any (PIPE_BUF)
_LEVELS = ("debug", "info", "warning", "error")


@attrs.frozen
class ParentLog:
    """The log of a supervising parent, on stderr."""

    log_format: LogFormat
    log_level: LogLevel

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: LogLevel, event: str, fields: dict[str, Any]) -> None:
        if _LEVELS.index(level) < _LEVELS.index(self.log_level):
            return
        told = {"actor": "supervisor", **fields}
        if self.log_format == "json":
            stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            line = json.dumps({**told, "event": event, "level": level, "timestamp": stamp}, default=repr)
        else:
            shown = " ".join(f"{name}={_log_value(value)}" for name, value in told.items())
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{level:<9}] {event:<30} {shown}"
        with contextlib.suppress(OSError, ValueError):  # the server survives the reader of its log
            if select.select((), (2,), (), 0)[1]:  # a reader that has stopped must not stop this process
                os.write(2, line.encode("utf-8", "backslashreplace")[:_LONGEST_LINE] + b"\n")


def _log_value(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else repr(value)


def supervise(
    settings: Settings, inherited: Sequence[socket.socket], limits: SilenceLimits | None = None
) -> int:
    """Run this very command as a child until it needs no restart; return the exit status.

    Args:
        inherited: Listening sockets from systemd; without any, the addresses of the settings are bound.

    Raises:
        ClickException: An address cannot be bound.
    """
    log = ParentLog(settings.log_format, settings.log_level)
    try:
        sockets = list(inherited) or bind_sockets(settings, log.warning)
    except OSError as error:
        from greenroom.http.process.runtime_file import describe_unusable_address

        raise click.ClickException(describe_unusable_address(error)) from error
    command = (sys.executable, *sys.orig_argv[1:])
    paths = [] if inherited else unix_paths(sockets)
    try:
        scheme = "https" if settings.tls_certificate else "http"
        own = Systemd(os.environ), limits or SilenceLimits(), scheme
        return Supervisor(command, sockets, settings.shutdown_timeout, log, *own).run()
    finally:
        remove_paths(paths)
