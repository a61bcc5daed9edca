"""Classification of crashes by their effect on the device, and search for errors pending in streams."""

from __future__ import annotations

import sys
from enum import IntEnum

from greenroom.engine.device.device_errors import device_errors_in, is_device_message, synchronize_streams

_REFUSED_BEFOREHAND = ("[metal::malloc]", "[malloc]", "[read]", "[load")
"""Prefixes of errors raised before any computation: a refused allocation, or a truncated file."""

_OUT_OF_MEMORY = ("OutOfMemory", "out of memory", "Insufficient Memory")
_SUBMISSIONS_IGNORED = "SubmissionsIgnored"
"""Part of macOS's name for its refusal of further work after "prior/excessive" errors."""

_TRIES = 5
"""Number of waits for a stream's errors.

A stream throws an error once and forgets it; one that throws more often must not be used again.
"""


class Crash(IntEnum):
    """Severity of a crash, from an error in code to a lost device."""

    CODE = 1
    """Error in code, a file or a size; no computation on the device failed."""
    MEMORY = 2
    """Lack of memory or an unknown failure in a computation; its thread may be corrupt."""
    DEVICE = 3
    """Failed computation on the device."""
    REFUSED = 4
    """Refusal by the system of any further work from this process."""


def crash_of(error: BaseException) -> Crash:
    """Return the severity of an error, including the errors that led to it."""
    return max((_degree(str(each)) for each in device_errors_in(error)), default=Crash.CODE)


def find_late_crash() -> Crash | None:
    """Wait for all work of this thread; return the worst failure found, and clear pending errors.

    Waits for both streams, since files are read on the CPU's stream, whatever device computes. Does not
    import MLX.
    """
    if "mlx.core" not in sys.modules:
        return None
    found: list[Crash] = []
    for _ in range(_TRIES):
        try:
            synchronize_streams()
            break
        except RuntimeError as error:
            found.append(crash_of(error))
    else:
        found.append(Crash.MEMORY)
    return max(found, default=None)


def _degree(text: str) -> Crash:
    if text.startswith(_REFUSED_BEFOREHAND):
        return Crash.CODE
    if _SUBMISSIONS_IGNORED in text:
        return Crash.REFUSED
    if any(words in text for words in _OUT_OF_MEMORY) or not is_device_message(text):
        return Crash.MEMORY
    return Crash.DEVICE
