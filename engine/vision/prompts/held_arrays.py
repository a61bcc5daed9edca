"""How much memory the arrays of processed images take, of all requests that wait or run in this process.

A photograph that a processor takes whole is 300 MB of arrays, for as long as its request lives: requests that
wait in a queue would fill the memory, which no account of the engine knows of before they are let in.
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
"""Of the machine's memory."""


class Arrays(dict[str, Any]):
    """Arrays by name, whose end can be watched."""


class HeldArrays:
    """Counts the bytes of arrays until nobody holds them any more. May be used from any thread.

    Args:
        limit: Bytes that may be held.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.RLock()  # a finalizer may run while it is held
        self.nbytes = 0

    def hold(self, arrays: Mapping[str, Any]) -> Arrays:
        """Return the same arrays, counted.

        Raises:
            ProblemError: 503: others hold too much; alone, any image may.
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
"""Of all models of the process."""
