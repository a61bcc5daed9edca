"""Writing of whole log lines to a stream whose reader may be slow, stopped or gone."""

from __future__ import annotations

import io
import os
import select
import threading
from collections.abc import Callable
from typing import TextIO

PATIENCE = 1.0
"""Seconds to wait for a reader that has stopped; the event loop stands still for so long, once a process."""


class LineSink:
    """Writes whole lines and never fails, since the server must survive the reader of its log.

    A pipe or terminal whose reader stops would stop every thread that logs. So lines are dropped once it has
    taken nothing for a while, and counted in the log as soon as it takes more.

    Args:
        lost_lines: Function that returns the line which tells the number of lost ones.
    """

    def __init__(self, stream: TextIO, lost_lines: Callable[[int], str]) -> None:
        self._stream = stream
        self._lost_lines = lost_lines
        self._lock = threading.Lock()
        self._dropped = 0
        self._is_cut = False
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, io.UnsupportedOperation):
            self._descriptor = None

    def write(self, line: str) -> None:
        """Write a line, or drop it."""
        with self._lock:
            try:
                if self._descriptor is None:
                    self._stream.write(line)
                    self._stream.flush()
                else:
                    self._write_in_time(self._descriptor, line.encode("utf-8", "backslashreplace"))
            except (OSError, ValueError):
                pass

    def flush(self) -> None:
        """Do nothing: `write` has already flushed."""

    def _write_in_time(self, descriptor: int, line: bytes) -> None:
        told = self._lost_lines(self._dropped).encode() if self._dropped else b""
        unsent = (b"\n" if self._is_cut else b"") + told + line
        while unsent:
            if not _takes_more(descriptor, 0.0 if self._dropped else PATIENCE):
                self._dropped += 1
                return
            # So many bytes are taken without blocking (`select.PIPE_BUF`).
            sent = os.write(descriptor, unsent[: select.PIPE_BUF])
            unsent = unsent[sent:]
            self._is_cut = bool(unsent)
        self._dropped = 0


def _takes_more(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(1000 * seconds))
