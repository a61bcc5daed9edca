"""A limit on the memory of processed images, over all waiting and running requests of this process.

A photograph that is processed at full size takes 300 MB of arrays for as long as its request lives. The
engine's memory account does not see queued requests, which could fill the memory.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from greenroom.engine.memory.device_memory import main_memory
from greenroom.engine.vision.prompts.input_arrays import size_of
from greenroom.schemas.problems import Problem, ProblemError

_SHARE = 0.25
"""Limit as a share of the machine's memory."""


class Arrays(dict[str, Any]):
    """A dict of arrays by name that supports weak references."""


class HeldArrays:
    """Counts the bytes of arrays until they are garbage-collected. Thread-safe.

    Args:
        limit: Limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.RLock()  # A finalizer may run while this thread holds it.
        self.nbytes = 0

    def hold(self, arrays: Mapping[str, Any]) -> Arrays:
        """Return the same arrays, counted until they are freed.

        Raises:
            ProblemError: 503: other requests hold too much; if none hold any, every size is accepted.
        """
        held = Arrays(arrays)
        size = size_of(list(held.values()))[1]
        with self._lock:
            if self.nbytes and self.nbytes + size > self._limit:
                detail = (
                    f"Images of requests that wait or run take {self.nbytes >> 20:,} MB, and this would take "
                    f"{size >> 20:,} MB more; {self._limit >> 20:,} MB are for all together."
                )
                raise ProblemError(Problem(503, "images_waiting", detail, retry_after=2))
            self.nbytes += size
        weakref.finalize(held, self._release, size).atexit = False
        return held

    def _release(self, size: int) -> None:
        with self._lock:
            self.nbytes -= size


HELD = HeldArrays(int(main_memory() * _SHARE))
"""Counter shared by all models of the process."""
