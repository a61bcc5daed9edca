"""Limits of a process that decodes a client's file."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs

from greenroom.engine.media.processes import limited_process

REFUSED = limited_process.REFUSED
"""Exit status of a process that has said on its standard error what is wrong with the file."""


@attrs.frozen
class DecodingLimits:
    """Bounds on what one process may take; the system or the process itself keeps them, not the server.

    Args:
        memory: Bytes of address space; of resident memory where the system refuses to limit the first.
        seconds: Of CPU time, all threads together. The time on the clock is the caller's to watch.
        descriptors: Open files, those of the program and its libraries included.
    """

    memory: int = 2 * 1024**3
    seconds: int = 20
    descriptors: int = 64

    def command(self, program: Path, *arguments: object) -> list[str]:
        """Return the command line that runs a program within these limits.

        Args:
            program: A file of Python that imports nothing of ours that computes. It reads the client's file
                from its standard input. It raises ValueError to say what is wrong with that file.
            arguments: Of the program.
        """
        limits = (self.memory, self.seconds, self.descriptors)
        launcher = limited_process.__file__
        return [sys.executable, "-I", *map(str, (launcher, *limits, program, *arguments))]
