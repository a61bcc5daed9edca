"""One thread, with a stack on which native code may recurse, that keeps nothing of a job that has ended."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal

import structlog
import trio

log = structlog.get_logger()

Purpose = Literal["gpu", "tokenizer", "store"]
"""Threads are reused for the same purpose only, so that no tokenizer thread comes to hold MLX streams."""

STACK_BYTES = 32 << 20
"""Stack of a worker. llguidance recurses natively where grammars nest, and macOS gives a thread 512 kB
unless told otherwise; only the pages that are touched take memory."""

_stack_size_lock = threading.Lock()
"""`threading.stack_size` holds for the whole process."""


class Worker:
    """One OS thread. It idles in a queue, runs one job at a time, and keeps nothing of a job that ended.

    Attributes:
        fresh: Nothing has been computed on it yet; belongs to the Trio thread.
        ended: It runs nothing any more.
    """

    def __init__(self, purpose: Purpose, number: int, token: trio.lowlevel.TrioToken) -> None:
        self.purpose = purpose
        self.name = f"greenroom-{purpose}-{number}"
        self.fresh = True
        self.ended = trio.Event()
        self._token = token
        self._jobs: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        _start_with_large_stack(self._thread)

    def put(self, job: Callable[[], Callable[[], None]]) -> None:
        """Run `job` on the thread, then what it returned on the Trio thread."""
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread once its job, if it has one, is done."""
        self._jobs.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for the operating system to be done with a thread that has `ended`; return whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            while (job := self._jobs.get()) is not None:
                report = job()
                del job
                self._token.run_sync_soon(report)
                del report
        try:
            # Without this the process aborts when it ends; after it, this thread can never use MLX again.
            if "mlx.core" in sys.modules:
                sys.modules["mlx.core"].clear_streams()
        except Exception:  # of a device that has failed
            log.exception("streams not cleared", actor="system", worker=self.name)
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.ended.set)


def _start_with_large_stack(thread: threading.Thread) -> None:
    with _stack_size_lock:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
