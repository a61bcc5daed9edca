"""Running a decoder process within limits, without blocking the calling thread."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from tempfile import TemporaryFile

import attrs

from greenroom.engine.fairness.preparation_steps import PENDING, PreparationSteps

_SLICE_SECONDS = 0.02
_LONGEST_REASON = 100_000


class TimeLeft:
    """Time left for decoder processes.

    Args:
        seconds: Time left in seconds.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


@attrs.frozen
class Ended:
    """The result of a decoder process.

    Args:
        status: Exit status; None if it ran out of time.
        written: Its standard output.
        said: The end of its standard error.
    """

    status: int | None
    written: bytes = attrs.field(default=b"", repr=False)
    said: str = ""


def run_decoder(command: Sequence[str], data: bytes, left: TimeLeft) -> PreparationSteps[Ended]:
    """Run a command line of `DecodingLimits` over a file; yields while it works.

    Closing the generator kills the process.

    Args:
        left: Time left; the time used is subtracted.
    """
    with TemporaryFile() as given, TemporaryFile() as written, TemporaryFile() as said:
        given.write(data)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=written, stderr=said)
        began = time.monotonic()
        working = 0.0
        try:
            # Time after the last poll is not counted: then the process waits for this thread.
            while (status := _status(process)) is None:
                working = time.monotonic() - began
                if working > left.seconds:
                    return Ended(None)
                yield PENDING
        finally:
            process.kill()
            process.wait()
            left.seconds = max(0.0, left.seconds - working)
        written.seek(0)
        said.seek(0)
        reason = said.read(_LONGEST_REASON).decode("utf-8", "replace").strip()[-300:]
        return Ended(status, written.read(), reason)


def _status(process: subprocess.Popen[bytes]) -> int | None:
    """Wait briefly for the process, and return its exit status; None if it still runs."""
    try:
        return process.wait(_SLICE_SECONDS)
    except subprocess.TimeoutExpired:
        return None
