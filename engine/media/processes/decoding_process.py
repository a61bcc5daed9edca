"""Have a file decoded by a process within limits, while others use the thread that asks."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from tempfile import TemporaryFile

import attrs

from greenroom.engine.fairness.slices import WAITS, Slices

_SLICE_SECONDS = 0.02
_LONGEST_REASON = 100_000


class TimeLeft:
    """What is left of the seconds that processes may take.

    Args:
        seconds: That are left.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


@attrs.frozen
class Ended:
    """The end of a process that decoded.

    Args:
        status: Its exit status; None if it took too long.
        written: On its standard output.
        said: The end of what it said on its standard error.
    """

    status: int | None
    written: bytes = attrs.field(default=b"", repr=False)
    said: str = ""


def run_decoder(command: Sequence[str], data: bytes, left: TimeLeft) -> Slices[Ended]:
    """Run a command line of `DecodingLimits` over a file, yielding while it works.

    Whoever leaves it ends the process.

    Args:
        left: The time that it may take; what it took is subtracted.
    """
    with TemporaryFile() as given, TemporaryFile() as written, TemporaryFile() as said:
        given.write(data)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=written, stderr=said)
        began = time.monotonic()
        working = 0.0
        try:
            # Only until it is seen to have ended: what comes after is waiting for the thread that looks.
            while (status := _status(process)) is None:
                working = time.monotonic() - began
                if working > left.seconds:
                    return Ended(None)
                yield WAITS
        finally:
            process.kill()
            process.wait()
            left.seconds = max(0.0, left.seconds - working)
        written.seek(0)
        said.seek(0)
        reason = said.read(_LONGEST_REASON).decode("utf-8", "replace").strip()[-300:]
        return Ended(status, written.read(), reason)


def _status(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for a short while, and return how a process has ended; None if it has not."""
    try:
        return process.wait(_SLICE_SECONDS)
    except subprocess.TimeoutExpired:
        return None
