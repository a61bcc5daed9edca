"""Runs a decoder's program within limits, in a process of its own.

It imports nothing of ours itself, so that the limits hold before anything else is imported; the decoder's
program may. Its arguments are bytes of memory, seconds of CPU time, descriptors, that program and its
arguments. It ends with 3 and one line on its standard error where the program raises ValueError, or where
the client's file takes too much memory; the system ends it where that takes too much CPU time.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
import threading
import time
from pathlib import Path

REFUSED = 3
"""Exit status of a file that is not decoded for a reason that is known."""

_TOO_LARGE = "it takes too much memory"
_NICENESS = 10
"""Of this process: the answers that a server is writing come first."""
_WATCH_SECONDS = 0.02
"""Between two looks at the size: in so short a time a decoder fills some hundred megabytes at most."""
_STATM = Path("/proc/self/statm")


def limit(memory: int, seconds: int, descriptors: int) -> None:
    """Bound what this process may take.

    macOS refuses to limit the address space, or takes the limit and does not keep it. There a thread watches
    the size. It needs the interpreter's lock between two looks, which decoders give up while they work.

    Args:
        memory: Bytes.
        seconds: Of CPU time.
    """
    _try_limit(resource.RLIMIT_CORE, 0)
    _try_limit(resource.RLIMIT_CPU, seconds)
    _try_limit(resource.RLIMIT_NOFILE, descriptors)
    if not _try_limit(resource.RLIMIT_AS, memory) or sys.platform == "darwin":
        threading.Thread(target=_watch, args=(memory,), daemon=True).start()


def _try_limit(kind: int, value: int) -> bool:
    """Return whether the system takes a limit."""
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):
        return False
    return True


def _watch(memory: int) -> None:
    """End the process once it has more than so many bytes."""
    while _resident_bytes() <= memory:
        time.sleep(_WATCH_SECONDS)
    os.write(sys.stderr.fileno(), _TOO_LARGE.encode())
    os._exit(REFUSED)


def _resident_bytes() -> int:
    """Return the size of this process; on macOS the largest that it ever had.

    Linux has that too, but begins it with the size of the process that started this one.
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
