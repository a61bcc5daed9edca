"""Signs of life of a server process, for its supervising parent and for systemd."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from greenroom.http.supervision.beat import Beat, Stage

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
    """The pipe to a supervising parent, whose end ends this process as SIGTERM does.

    Args:
        descriptor: Descriptor of its writing end.
    """

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
