"""Shutdown on signals: the first drains, a second Ctrl-C or a timeout ends the process."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
from types import FrameType

import trio

from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.process.native_timer import exit_natively_later
from greenroom.schemas.logs import get_logger

_TRACEBACK_SECONDS = 0.1
"""Seconds to print the traceback of a stuck interpreter before the native timer ends the process."""


class Shutdown:
    """Controls the end of the process from the first SIGINT, SIGTERM or other reason on.

    Create it before slow imports, so that no signal is missed. The signal handlers neither log nor start
    threads: they may interrupt code that holds a lock which these need.

    Args:
        timeout: Seconds from the first signal to the forced end of the process.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._forced: int = ExitStatus.FORCED
        self._interrupted: int = ExitStatus.INTERRUPTED
        self._token: trio.lowlevel.TrioToken | None = None
        self._drain: trio.Event | None = None
        self._begun = threading.Event()
        self._expired = threading.Event()
        # Started now: an interpreter that is shutting down cannot start threads.
        threading.Thread(target=self._end_after_timeout, name="shutdown timeout", daemon=True).start()
        self._log = threading.Thread(target=self._log_expiry, name="shutdown log", daemon=True)
        self._log.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    def set_on_signal(self, drain: trio.Event) -> None:
        """Set `drain` in this Trio run at the first signal, or at once if it has already arrived."""
        self._token, self._drain = trio.lowlevel.current_trio_token(), drain
        if self.has_begun:
            drain.set()

    def end_within(self, seconds: float, status: int) -> None:
        """Start the shutdown without a signal, unless it has already started.

        Args:
            seconds: Time limit of the shutdown, in seconds.
            status: Exit status if the end is forced or interrupted.
        """
        if not self.has_begun:
            self._timeout, self._forced, self._interrupted = seconds, status, status
            self._begin()

    def _begin(self) -> None:
        self._begun.set()
        # C code that holds the GIL blocks Python threads, but not these timers.
        seconds = max(self._timeout, 0.1)
        native = exit_natively_later(seconds + _TRACEBACK_SECONDS, self._forced)
        faulthandler.dump_traceback_later(seconds, exit=not native, file=2)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self.has_begun:
            self._begin()
            if self._token is not None and self._drain is not None:
                # Raising here would interrupt the main thread anywhere, even while it joins other threads.
                with contextlib.suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._drain.set)
        elif number == signal.SIGINT:
            os._exit(self._interrupted)

    def _end_after_timeout(self) -> None:
        self._begun.wait()
        time.sleep(forced_end(self._timeout))
        self._expired.set()
        # Logging itself may hang.
        self._log.join(min(0.2, self._timeout / 20))
        os._exit(self._forced)

    def _log_expiry(self) -> None:
        self._expired.wait()
        waiting = [thread.name for thread in threading.enumerate() if not thread.daemon]
        get_logger().warning("shutdown forced", shutdown_timeout=self._timeout, threads=waiting)


def forced_end(timeout: float) -> float:
    """Return the seconds until the forced end, slightly before the timeout but after requests were failed.

    Args:
        timeout: Time limit of a shutdown, in seconds.
    """
    return max(0.0, timeout - min(0.5, timeout / 10))
