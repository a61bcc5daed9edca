"""Clocks that go faster or slower than time, so that all work seems to take longer or shorter."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

VARIABLE = "GREENROOM_TEST_COSTS"
"""Names the factor in the environment of a test run."""
_KEEP_TIME = ("queue", "subprocess", "threading", "trio")
"""Modules that keep the clocks they were imported with: they wait as long as ever."""


def scale_clocks(factor: float) -> None:
    """Have this process measure that many times what it takes.

    Must run before any module of ours is imported, since those keep clocks too.
    """
    for name in _KEEP_TIME:
        import_module(name)
    for name in ("monotonic", "perf_counter", "thread_time"):
        setattr(time, name, _scaled(getattr(time, name), factor))


def _scaled(clock: Callable[[], float], factor: float) -> Callable[[], float]:
    return lambda: factor * clock()
