"""Signs of life: as JSON lines in the pipe to a supervising parent, and as messages to systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Literal, get_args

import attrs
import click

Stage = Literal["starting", "serving", "ending"]
"""The stage of a server process: before it listens, while it listens, and once it drains."""

_MOST_NAMES, _LONGEST_NAME = 8, 300
"""Bounds of a line: a pipe takes 4,096 bytes whole or not at all. The next line tells what one has lost."""


@attrs.frozen
class Beat:
    """A sign of life, with what the process does at that moment. `importing`: True while a library is
    imported, which may silence the process for long.
    """

    stage: Stage = "starting"
    importing: bool = False
    busy: tuple[str, ...] = ()

    def to_line(self) -> bytes:
        names = [name[:_LONGEST_NAME] for name in self.busy[:_MOST_NAMES]]
        fields = {"stage": self.stage, "importing": self.importing, "busy": names}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def parse_beat(line: bytes) -> Beat | None:
    """Return the beat of a line; None if it is none, such as the rest of a line that was cut."""
    try:
        read = json.loads(line)
        stage, importing, busy = read["stage"], read["importing"], read["busy"]
    except (ValueError, TypeError, KeyError):
        return None
    known = (
        stage in get_args(Stage) and isinstance(busy, list) and all(isinstance(name, str) for name in busy)
    )
    return Beat(stage, importing is True, tuple(busy)) if known else None


@attrs.frozen
class SilenceLimits:
    """Seconds without a sign of life after which a child counts as hung."""

    serving: float = 10.0
    importing: float = 60.0

    def of(self, beat: Beat) -> float:
        return self.importing if beat.importing or beat.stage == "starting" else self.serving

    @property
    def interval(self) -> float:
        """Seconds between two signs of life, and between two checks."""
        return min(1.0, self.serving / 10, self.importing / 10)


class Silence:
    """The time since a child's last sign of life, as far as its watcher was awake.

    After the watcher itself was stopped, or its machine slept, a check is late: then two intervals count at
    most, since the child may have been stopped too.

    Args:
        now: Present time in seconds, by a clock that never goes back.
    """

    def __init__(self, limits: SilenceLimits, now: float) -> None:
        self._limits = limits
        self._checked = now
        self._beat = Beat()
        self._seconds = 0.0

    @property
    def beat(self) -> Beat:
        return self._beat

    @property
    def seconds(self) -> float:
        """Seconds without a sign of life, up to the last check."""
        return self._seconds

    def record(self, beat: Beat) -> None:
        self._beat, self._seconds = beat, 0.0

    def is_too_long(self, now: float) -> bool:
        """Count the time since the last check, and return whether the child counts as hung."""
        self._seconds += min(now - self._checked, 2 * self._limits.interval)
        self._checked = now
        return self._seconds >= self._limits.of(self._beat)


VARIABLE = "GREENROOM_CHILD"
"""Variable through which a supervising parent tells its child what it has inherited."""
_FIRST_DESCRIPTOR = 3  # First of systemd's descriptors (`SD_LISTEN_FDS_START` in sd_listen_fds(3))


@attrs.frozen
class ParentLink:
    """A child's link to its supervising parent. `interval`: seconds between two signs of life; `left_out`:
    names of the models that are not loaded before a request wants them.
    """

    pipe: int
    interval: float
    left_out: tuple[str, ...] = ()
    restarts: int = 0


@attrs.frozen
class Inheritance:
    """The listening sockets of this process, and its parent; neither if it was started alone."""

    sockets: tuple[socket.socket, ...] = ()
    parent: ParentLink | None = None


def inherit(environment: MutableMapping[str, str]) -> Inheritance:
    """Take over sockets and pipe, and remove their variables, so that this process's own children do not.
    Raises ClickException: systemd has passed something other than listening TCP sockets.
    """
    told = environment.pop(VARIABLE, None)
    activated = {name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if told is not None:
        fields = json.loads(told)
        sockets, pipe = fields.pop("sockets"), fields.pop("pipe")
        os.set_inheritable(pipe, False)
        link = ParentLink(pipe, fields["interval"], tuple(fields["left_out"]), fields["restarts"])
        return Inheritance(tuple(map(_listening, sockets)), link)
    if activated["LISTEN_PID"] != str(os.getpid()) or not activated["LISTEN_FDS"].isdigit():
        return Inheritance()
    descriptors = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(activated["LISTEN_FDS"]))
    return Inheritance(tuple(map(_listening, descriptors)))


def variables_for(child: ParentLink, sockets: tuple[socket.socket, ...]) -> Mapping[str, str]:
    told = attrs.asdict(child) | {"sockets": [sock.fileno() for sock in sockets]}
    return {VARIABLE: json.dumps(told)}


def _listening(descriptor: int) -> socket.socket:
    """Return an inherited socket, after keeping this process's own children from inheriting it."""
    served = False
    with contextlib.suppress(OSError):
        sock = socket.socket(fileno=descriptor)
        listens = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        served = listens and sock.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        if not served:
            sock.close()
    if not served:
        raise click.ClickException(f"descriptor {descriptor} (LISTEN_FDS) is no listening TCP or Unix socket")
    sock.set_inheritable(False)
    return sock


class Systemd:
    """The socket of systemd, if it started this process; else messages are dropped.

    Systemd's environment variables are removed, so that no child process inherits them.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._path = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        watches = self._path and microseconds.isdigit() and pid in ("", str(os.getpid()))
        self._microseconds = int(microseconds) if watches else 0
        self._told = self._microseconds

    @property
    def watchdog_seconds(self) -> float | None:
        """Seconds of silence after which systemd kills this process; None if it does not watch."""
        return self._microseconds / 1e6 if self._microseconds else None

    def tell(self, *messages: str) -> None:
        """Send messages such as `READY=1`, which have no line breaks; never block."""
        if not self._path:
            return
        address = f"\0{self._path[1:]}" if self._path.startswith("@") else self._path
        lines = "\n".join(" ".join(message.splitlines()) for message in messages)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(lines.encode("utf-8", "replace"), address)

    def send(self, beat: Beat) -> None:
        """Pass on a sign of life of this process; imports may be silent for longer."""
        if self._microseconds:
            limit = self._microseconds
            if beat.importing or beat.stage == "starting":
                limit = max(limit, round(SilenceLimits().importing * 1e6))
            changed = [] if limit == self._told else [f"WATCHDOG_USEC={limit}"]
            self._told = limit
            self.tell(*changed, "WATCHDOG=1")
