"""Scaled clocks, which make all work seem to take longer or shorter."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

VARIABLE = "GREENROOM_TEST_COSTS"
"""Environment variable with the factor."""
_KEEP_TIME = ("queue", "subprocess", "threading", "trio")
"""Modules that keep the unscaled clocks, so that waits take their usual time."""


def scale_clocks(factor: float) -> None:
    """Multiply this process's clocks by a factor.

    Must be called before any of our modules is imported, since those keep references to the clocks.
    """
    for name in _KEEP_TIME:
        import_module(name)
    for name in ("monotonic", "perf_counter", "thread_time"):
        setattr(time, name, _scaled(getattr(time, name), factor))


def _scaled(clock: Callable[[], float], factor: float) -> Callable[[], float]:
    return lambda: factor * clock()
