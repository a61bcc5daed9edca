"""Messages to systemd about this process (sd_notify(3)): readiness, status and signs of life."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

from greenroom.http.supervision.beat import Beat, SilenceLimits


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
