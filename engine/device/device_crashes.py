"""Tells how much of the device a crash concerns, and finds the errors that a thread's streams still hold."""

from __future__ import annotations

import sys
from enum import IntEnum

from greenroom.engine.device.device_errors import device_errors_in, is_device_message, synchronize_streams

_REFUSED_BEFOREHAND = ("[metal::malloc]", "[malloc]", "[read]", "[load")
"""How errors begin of what was never computed: memory that was not given, a file that ends too soon."""

_OUT_OF_MEMORY = ("OutOfMemory", "out of memory", "Insufficient Memory")
_SUBMISSIONS_IGNORED = "SubmissionsIgnored"
"""Part of the name that macOS gives its refusal to take more work after "prior/excessive" errors."""

_TRIES = 5
"""A stream throws an error once and forgets it; one that throws so often is not to be used again."""


class Crash(IntEnum):
    """Degrees of a crash, from the code that raised to a device that is gone."""

    CODE = 1
    """Code, a file, or a size: the device has not failed at anything."""
    MEMORY = 2
    """A computation found too little memory, or failed in unknown words: its thread may be spoiled."""
    DEVICE = 3
    """The device has failed at a computation."""
    REFUSED = 4
    """The system takes no more work of this process."""


def crash_of(error: BaseException) -> Crash:
    """Return how much of the device an error concerns, or what led to it."""
    return max((_degree(str(each)) for each in device_errors_in(error)), default=Crash.CODE)


def find_late_crash() -> Crash | None:
    """Wait for all that this thread has launched; return the worst of what fails, and leave no error behind.

    Both streams are waited for: files are read on the CPU's, whatever computes. Imports nothing of MLX.
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
