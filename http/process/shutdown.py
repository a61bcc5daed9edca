"""Shutdown on signals: the first drains, a second Ctrl-C or a timeout ends the process."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from types import FrameType

import trio

from greenroom.http.process.exit_status import ExitStatus
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
        """Start the shutdown without a signal, unless it has already started. `seconds`: time limit of the
        shutdown, in seconds.
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
    `timeout`: time limit of a shutdown, in seconds.
    """
    return max(0.0, timeout - min(0.5, timeout / 10))


# A native timer that ends the process even if its interpreter is stuck.
#
# Python threads do not run while native code holds the GIL, and `faulthandler`, which does not need it, can
# only exit with status 1. A system timer therefore calls `_exit`: a POSIX timer on Linux, Grand Central
# Dispatch on macOS.

_CLOCK_MONOTONIC = 1
_SIGEV_THREAD = 2
_NANOSECONDS = 10**9


class _SignalEvent(ctypes.Structure):
    """Linux's `struct sigevent`, 64 bytes on 64-bit machines."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("unused", ctypes.c_char * 32),
    )


class _TimerSpec(ctypes.Structure):
    """The C type `struct itimerspec`: interval and first expiry, each in seconds and nanoseconds."""

    _fields_ = (("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2))


def exit_natively_later(seconds: float, status: int) -> bool:
    """End this process after a delay in any case; return whether the system supports that. `seconds`: delay
    in seconds, above 0.
    """
    nanoseconds = max(1, int(seconds * _NANOSECONDS))
    try:
        library = ctypes.CDLL(None)
        exit_now = ctypes.cast(library._exit, ctypes.c_void_p)
        if sys.platform == "darwin":
            _dispatch(library, exit_now, nanoseconds, status)
            return True
        return _set_timer(library, exit_now, nanoseconds, status)
    except (OSError, AttributeError):
        return False


def _set_timer(library: ctypes.CDLL, exit_now: ctypes.c_void_p, nanoseconds: int, status: int) -> bool:
    event = _SignalEvent(value=status, notify=_SIGEV_THREAD, function=exit_now)
    timer = ctypes.c_void_p()
    if library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        return False
    spec = _TimerSpec(first=(ctypes.c_long * 2)(*divmod(nanoseconds, _NANOSECONDS)))
    set_: int = library.timer_settime(timer, 0, ctypes.byref(spec), None)
    return set_ == 0


def _dispatch(library: ctypes.CDLL, exit_now: ctypes.c_void_p, nanoseconds: int, status: int) -> None:
    library.dispatch_time.restype = ctypes.c_uint64
    library.dispatch_time.argtypes = (ctypes.c_uint64, ctypes.c_int64)
    library.dispatch_get_global_queue.restype = ctypes.c_void_p
    library.dispatch_get_global_queue.argtypes = (ctypes.c_long, ctypes.c_ulong)
    library.dispatch_after_f.argtypes = (ctypes.c_uint64, *(ctypes.c_void_p,) * 3)
    library.dispatch_after_f.restype = None
    when = library.dispatch_time(0, nanoseconds)
    library.dispatch_after_f(when, library.dispatch_get_global_queue(0, 0), status, exit_now)


WEIGHT_FILES = 4096
"""Wanted limit of open files, if the system allows it: sharded weights beside many connections."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which a computing thread yields the GIL; a model's worker needs it often and briefly."""


def switch_often() -> None:
    """Let the threads of this process take turns often, since most of them serve one model's worker."""
    sys.setswitchinterval(_SWITCH_INTERVAL)


_MACOS_OPEN_MAX = 10_240
"""Largest soft limit of macOS, even if the hard limit is infinite (`OPEN_MAX` in its `setrlimit(2)`)."""


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the soft limit to `wanted`, or as far as the hard limit allows; never lower it.

    It goes no further, since libraries that use `select(2)` cannot handle descriptors from 1,024 up.

    Returns:
        The resulting soft limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    allowed = _MACOS_OPEN_MAX if sys.platform == "darwin" else wanted
    if hard != resource.RLIM_INFINITY:
        allowed = min(allowed, hard)
    target = min(wanted, allowed)
    if target > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        except (OSError, ValueError):
            # The kernel has a lower limit: continue with the present one.
            return soft
        return target
    return soft
