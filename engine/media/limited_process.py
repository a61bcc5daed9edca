"""A launcher that runs a decoder program within limits, in its own process.

It imports no module of the server, so that the limits hold before anything else is imported; the decoder
program may. Its arguments are bytes of memory, seconds of CPU time, number of descriptors, the program and
the program's arguments. It exits with status 3 and one line on standard error if the program raises
ValueError or exceeds the memory limit; the system kills it if it exceeds the CPU time.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
import threading
import time
from pathlib import Path

REFUSED = 3  # Exit status for a file that is rejected for a known reason

_TOO_LARGE = "it takes too much memory"
_NICENESS = 10  # Niceness of this process: the server's own work comes first
_WATCH_SECONDS = 0.02
"""Interval in seconds between checks of the size: a decoder allocates some hundred megabytes in it at most.
"""
_STATM = Path("/proc/self/statm")


def limit(memory: int, seconds: int, descriptors: int) -> None:
    """Limit the resources of this process.

    macOS rejects a limit of the address space, or accepts and ignores it. There a thread watches the resident
    size. It needs the GIL for each check, which decoders release while they work.

    Args:
        memory: Memory in bytes.
        seconds: CPU time in seconds.
    """
    _try_limit(resource.RLIMIT_CORE, 0)
    _try_limit(resource.RLIMIT_CPU, seconds)
    _try_limit(resource.RLIMIT_NOFILE, descriptors)
    if not _try_limit(resource.RLIMIT_AS, memory) or sys.platform == "darwin":
        threading.Thread(target=_watch, args=(memory,), daemon=True).start()


def _try_limit(kind: int, value: int) -> bool:
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):
        return False
    return True


def _watch(memory: int) -> None:
    """Exit the process once it exceeds `memory` bytes."""
    while _resident_bytes() <= memory:
        time.sleep(_WATCH_SECONDS)
    os.write(sys.stderr.fileno(), _TOO_LARGE.encode())
    os._exit(REFUSED)


def _resident_bytes() -> int:
    """Return this process's resident size in bytes; on macOS its peak.

    Linux reports a peak too, but it starts at the size of the parent process.
    """
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()


def _run(program: str) -> None:
    try:
        runpy.run_path(program, run_name="__main__")
    except (ValueError, MemoryError) as error:
        print(str(error) or _TOO_LARGE, file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    os.nice(_NICENESS)
    limit(*map(int, sys.argv[1:4]))
    sys.argv = sys.argv[4:]
    _run(sys.argv[0])
