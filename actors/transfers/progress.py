"""Progress of a download: bytes, and the rate at which they arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
import trio

from greenroom.schemas.protocols.download_protocol import DownloadProgress, DownloadStage

WINDOW = 5.0
"""Seconds over which the rate is measured."""

_INTERVAL = 0.2
"""Least seconds between two reports of one stage."""


class ProgressMeter:
    """The progress of a download, reported a few times each second.

    Args:
        report: Callback for the progress; must not block.
    """

    def __init__(self, report: Callable[[DownloadProgress], None]) -> None:
        self._report = report
        self._progress = DownloadProgress("resolving")
        self._arrived: deque[tuple[float, int]] = deque()
        self._reported = float("-inf")
        report(self._progress)

    def enter(self, stage: DownloadStage, files: int = 0, nbytes: int = 0, received: int = 0) -> None:
        """Begin a stage, and report it."""
        self._progress = DownloadProgress(stage, files, nbytes, received)
        self._arrived.clear()
        self.set(received, force=True)

    def set(self, received: int, *, force: bool = False) -> None:
        """Note how many bytes there are, and report it unless a report was just made."""
        now = trio.current_time()
        if self._arrived and received < self._arrived[-1][1]:
            self._arrived.clear()  # a file begins anew
        self._arrived.append((now, received))
        while now - self._arrived[0][0] > WINDOW:
            self._arrived.popleft()
        if force or now - self._reported >= _INTERVAL:
            first, had = self._arrived[0]
            rate = (received - had) / (now - first) if now > first else 0.0
            self._progress = attrs.evolve(self._progress, received=received, rate=rate)
            self._reported = now
            self._report(self._progress)
