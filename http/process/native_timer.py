"""A timer that ends the process though its interpreter is stuck: nothing of Python runs in it.

Python's own threads do not get on while native code keeps the interpreter, and `faulthandler`, which does,
knows no exit status but 1. So the system's timers call `_exit`: POSIX timers on Linux, Grand Central Dispatch
on macOS.
"""

from __future__ import annotations

import ctypes
import sys

_CLOCK_MONOTONIC = 1
_SIGEV_THREAD = 2
_NANOSECONDS = 10**9


class _SignalEvent(ctypes.Structure):
    """`struct sigevent` of Linux, 64 bytes on 64-bit machines."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("unused", ctypes.c_char * 32),
    )


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`: an interval, and the time of the first expiry, each as seconds and nanoseconds."""

    _fields_ = (("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2))


def exit_natively_later(seconds: float, status: int) -> bool:
    """End this process with a status, whatever it does then; return whether the system has such a timer.

    Args:
        seconds: From now, above 0.
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
