"""A native timer that ends the process even if its interpreter is stuck.

Python threads do not run while native code holds the GIL, and `faulthandler`, which does not need it, can
only exit with status 1. A system timer therefore calls `_exit`: a POSIX timer on Linux, Grand Central
Dispatch on macOS.
"""

from __future__ import annotations

import ctypes
import sys

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
    """End this process after a delay in any case; return whether the system supports that.

    Args:
        seconds: Delay in seconds, above 0.
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
