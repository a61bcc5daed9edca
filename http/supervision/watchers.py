"""The parent and the systemd that watch over a server process."""

from __future__ import annotations

import socket
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING

from greenroom.actors.core.activity import Activity
from greenroom.http.supervision.heartbeats import Heartbeats, Listener, ParentPipe
from greenroom.http.supervision.inheritance import Inheritance
from greenroom.http.supervision.systemd import Systemd

if TYPE_CHECKING:
    import trio

_WATCHDOG_SHARE = 3
"""Signs of life within systemd's limit."""


class Watchers:
    """The watchers of this process, which receive its stages and its work; often there are none.

    Args:
        inherited: What the process has inherited.
        environment: Environment variables, without systemd's afterwards.

    Attributes:
        activity: Record of models and imports that the watchers hear of.
        left_out: Names of models that are not to be loaded at the start.
        sockets: Inherited listening sockets.
        is_first: False if processes of the same parent have died before.
    """

    def __init__(self, inherited: Inheritance, environment: MutableMapping[str, str]) -> None:
        parent = inherited.parent
        self.sockets: Sequence[socket.socket] = inherited.sockets
        self.left_out = parent.left_out if parent is not None else ()
        self.is_first = parent is None or parent.restarts == 0
        self._systemd = Systemd(environment)
        listeners: list[Listener] = []
        intervals: list[float] = []
        if parent is not None:
            listeners.append(ParentPipe(parent.pipe).send)
            intervals.append(parent.interval)
        if (seconds := self._systemd.watchdog_seconds) is not None:
            listeners.append(self._systemd.send)
            intervals.append(seconds / _WATCHDOG_SHARE)
        heartbeats = self._heartbeats = Heartbeats(min(intervals, default=1.0), listeners)

        def tell() -> None:
            heartbeats.record(activity.importing, activity.models)

        self.activity = activity = Activity(tell if listeners else None)

    def follow(self, token: trio.lowlevel.TrioToken) -> None:
        """Send signs of life to the watchers from now on, as long as this event loop answers."""
        self._heartbeats.follow(token)

    def ready(self, addresses: Sequence[str]) -> None:
        """Tell the watchers that the server accepts requests at these addresses."""
        self._heartbeats.enter("serving")
        self._systemd.tell("READY=1", f"STATUS=Serving on {', '.join(addresses)}")

    def status(self, text: str) -> None:
        self._systemd.tell(f"STATUS={text}")

    def ending(self) -> None:
        """Tell the watchers that the server finishes its requests and takes no new ones."""
        self._heartbeats.enter("ending")
        self._systemd.tell("STOPPING=1", "STATUS=Finishing accepted requests")
