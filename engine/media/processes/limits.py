"""Limits of a process that decodes a client's file."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs

from greenroom.engine.media.processes import limited_process

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
            arguments: The program's arguments.
        """
        limits = (self.memory, self.seconds, self.descriptors)
        launcher = limited_process.__file__
        return [sys.executable, "-I", *map(str, (launcher, *limits, program, *arguments))]
