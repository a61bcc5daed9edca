"""Running a decoder process within limits, without blocking the calling thread."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import attrs

from greenroom.engine.media import limited_process
from greenroom.engine.resources.preparation_steps import PENDING, PreparationSteps

_SLICE_SECONDS = 0.02
_LONGEST_REASON = 100_000


class TimeLeft:
    """Time left for decoder processes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


@attrs.frozen
class Ended:
    """The result of a decoder process. `status`: exit status; None if it ran out of time."""

    status: int | None
    written: bytes = attrs.field(default=b"", repr=False)
    said: str = ""


def run_decoder(command: Sequence[str], data: bytes, left: TimeLeft) -> PreparationSteps[Ended]:
    """Run a command line of `DecodingLimits` over a file; yields while it works.

    Closing the generator kills the process.
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


REFUSED = limited_process.REFUSED
"""Exit status of a process that has written to standard error what is wrong with the file."""


@attrs.frozen
class DecodingLimits:
    """Resource limits of one decoder process, enforced by the system or the process, not by the server.

    Args:
        memory: Address space in bytes; resident memory if the system cannot limit address space.
        seconds: CPU time in seconds, over all threads. The caller limits wall-clock time.
        descriptors: Number of open files, including those of the program and its libraries.
    """

    memory: int = 2 * 1024**3
    seconds: int = 20
    descriptors: int = 64

    def command(self, program: Path, *arguments: object) -> list[str]:
        """Return the command line that runs a program within these limits.

        Args:
            program: A Python file that imports no MLX. It reads the client's file from standard input, and
                raises ValueError if that file is invalid.
        """
        limits = (self.memory, self.seconds, self.descriptors)
        launcher = limited_process.__file__
        return [sys.executable, "-I", *map(str, (launcher, *limits, program, *arguments))]
