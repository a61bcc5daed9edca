"""Waits for processes, each of which fails its test at last: a test that hangs tells nobody what is wrong."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TypeVar

PATIENCE = 300.0
"""Seconds after which what a test waits for will not come."""

Text = TypeVar("Text", str, bytes)


@contextmanager
def bounded(process: subprocess.Popen[Text], seconds: float = PATIENCE) -> Iterator[subprocess.Popen[Text]]:
    """Kill a process at the end of the block, or after some seconds, so that reading from it ends.

    `Popen` as a context manager waits for the process for ever, whatever has failed in its block.
    """
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    with process:
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It does not hold within these seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it does not hold after {seconds} s")
        time.sleep(0.01)


class OutputLines:
    """The lines of a pipe, read all the time by a thread, so that no process waits for its reader.

    The thread has a descriptor of its own: an orphan that holds the pipe delays neither the test nor its end.
    """

    def __init__(self, pipe: IO[str] | None) -> None:
        assert pipe is not None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ended = False
        descriptor = os.dup(pipe.fileno())
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def next(self, seconds: float = PATIENCE) -> str:
        """Return the next line; empty after the last.

        Raises:
            TimeoutError: None comes within these seconds.
        """
        if self._ended:
            return ""
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError(f"no line within {seconds:.0f} s") from None
        self._ended = not line
        return line

    def rest(self, seconds: float = PATIENCE) -> list[str]:
        """Return the further lines, up to the end of the pipe."""
        deadline = time.monotonic() + seconds
        return list(iter(lambda: self.next(deadline - time.monotonic()), ""))

    def so_far(self) -> list[str]:
        """Return the further lines that have come already."""
        found: list[str] = []
        while not self._ended and not self._lines.empty():
            found += filter(None, [self.next()])
        return found

    def _read(self, descriptor: int) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            for line in file:
                self._lines.put(line)
        self._lines.put("")
