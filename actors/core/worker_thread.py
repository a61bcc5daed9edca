"""A worker thread with a stack large enough for recursion in native code."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal

import trio

from greenroom.schemas.logs import get_logger

log = get_logger()

Purpose = Literal["gpu", "tokenizer", "store"]
"""The purpose of a thread. Reuse keeps it, so that no tokenizer thread comes to hold MLX streams."""

STACK_BYTES = 32 << 20
"""Stack size of a worker in bytes. llguidance recurses natively for nested grammars, and macOS gives threads
512 kB by default. Only the pages that are touched take memory."""

_stack_size_lock = threading.Lock()
"""Lock around `threading.stack_size`, which applies to the whole process."""


class Worker:
    """An OS thread that runs queued jobs one at a time and keeps no references to finished ones.

    Attributes:
        fresh: True if nothing has been computed on it yet; for the Trio thread only.
        ended: Event, set when the thread runs nothing any more.
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
        """Run `job` on the thread, then its result on the Trio thread."""
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread after its current job, if it has one."""
        self._jobs.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until the operating system has ended a thread that has `ended`, and return whether it has."""
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
            # Otherwise the process aborts at its end. Afterwards this thread can never use MLX again.
            if "mlx.core" in sys.modules:
                sys.modules["mlx.core"].clear_streams()
        except Exception:  # raised if the device has failed
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
