"""Signs of life of a server process, for its supervising parent and for systemd."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.core.worker_thread import Activity
from greenroom.http.supervision.heartbeat import Beat, Inheritance, Stage, Systemd

if TYPE_CHECKING:
    import trio


Listener = Callable[[Beat], None]
"""Function that passes a sign of life on; it may be called on any thread, and must not block."""


class Heartbeats:
    """A thread that sends signs of life as long as the event loop answers it.

    Before the loop runs and after it has ended, the thread alone is the sign of life. All methods may be
    called on any thread.

    Args:
        interval: Seconds between two signs of life.
        listeners: Functions that receive each; without any, no thread is started.
    """

    def __init__(self, interval: float, listeners: Sequence[Listener]) -> None:
        self._interval = interval
        self._listeners = tuple(listeners)
        self._beat = Beat()
        self._lock = threading.Lock()
        self._token: trio.lowlevel.TrioToken | None = None
        self._answered = threading.Event()
        if listeners:
            threading.Thread(target=self._run, name="heartbeats", daemon=True).start()

    def follow(self, token: trio.lowlevel.TrioToken) -> None:
        """Send signs of life only while this event loop answers."""
        self._answered.set()
        self._token = token

    def enter(self, stage: Stage) -> None:
        self._tell(lambda beat: attrs.evolve(beat, stage=stage))

    def record(self, importing: bool, busy: tuple[str, ...]) -> None:
        """Tell whether a library is imported, and which models load or compute."""
        self._tell(lambda beat: attrs.evolve(beat, importing=importing, busy=busy))

    def _run(self) -> None:
        paused = threading.Event()
        while not paused.wait(self._interval):
            if self._loop_answers():
                self._tell(lambda beat: beat)

    def _loop_answers(self) -> bool:
        """Return whether the loop has answered the last question, and ask the next one."""
        if self._token is None:
            return True
        answered = self._answered.is_set()
        if answered:
            self._answered.clear()
            try:
                self._token.run_sync_soon(self._answered.set, idempotent=True)
            except RuntimeError:  # trio.RunFinishedError: the process ends
                self._token = None
        return answered

    def _tell(self, change: Callable[[Beat], Beat]) -> None:
        with self._lock:
            self._beat = change(self._beat)
            for listener in self._listeners:
                listener(self._beat)


class ParentPipe:
    """The pipe to a supervising parent, whose end ends this process as SIGTERM does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._ended = threading.Event()
        os.set_blocking(descriptor, False)
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def send(self, beat: Beat) -> None:
        """Send a sign of life; it is dropped while the parent does not read."""
        try:
            os.write(self._descriptor, beat.to_line())
        except BrokenPipeError:
            self._end()
        except OSError:
            pass

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLHUP)  # a pipe without a reader; macOS wants one event
        poll.poll()
        self._end()

    def _end(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            os.kill(os.getpid(), signal.SIGTERM)


_WATCHDOG_SHARE = 3  # Signs of life within systemd's limit


class Watchers:
    """The watchers of this process, which receive its stages and its work; often there are none.

    Args:
        environment: Environment variables, without systemd's afterwards.

    Attributes:
        activity: Record of models and imports that the watchers hear of.
        left_out: Names of models that are not to be loaded at the start.
        sockets: Inherited listening sockets.
        has_parent: True if a supervising parent has started this process.
        is_first: False if processes of the same parent have died before.
    """

    def __init__(self, inherited: Inheritance, environment: MutableMapping[str, str]) -> None:
        parent = inherited.parent
        self.sockets: Sequence[socket.socket] = inherited.sockets
        self.left_out = parent.left_out if parent is not None else ()
        self.has_parent = parent is not None
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
