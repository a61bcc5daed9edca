"""Threads that belong to the system and are lent to one model after another.

A fresh thread per load would leak: MLX keeps a native thread for every thread that used it, and a process
that ends while such a thread has not cleared its streams aborts. So threads are reused, and clear their
streams as their last act, when the system closes.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Literal, TypeVar

import attrs
import structlog
import trio

from greenroom.actors.core.pulse import SILENT_TICKS, Pulse
from greenroom.engine.device.device_errors import forget_errors

log = structlog.get_logger()

T = TypeVar("T")
Purpose = Literal["gpu", "tokenizer", "store"]
"""Threads are reused for the same purpose only, so that no tokenizer thread comes to hold MLX streams."""


HANG_TIMEOUT = 120.0
"""Seconds without a sign of life after which a thread at work counts as hung."""


@attrs.frozen
class WorkersStatistics:
    """How many threads there are, and what they do."""

    lent: int
    idle: int
    quarantined: int


@attrs.frozen
class JobCrashed:
    """A job has ended with what it may not raise; its thread is free again.

    Args:
        reason: What it raised, in a line.
    """

    reason: str


@attrs.frozen
class WorkerSilent:
    """A thread gave no sign of life for so long that it is quarantined: neither awaited nor lent again."""

    seconds: float


@attrs.frozen(eq=False)
class _Loan:
    """Who has a thread, and what for."""

    owner: str
    pulse: Pulse
    report: Callable[[WorkerSilent], None]


_CLOSE_SECONDS: dict[Purpose, float] = {"gpu": math.inf, "tokenizer": 2.0, "store": 2.0}
"""Seconds for which the close waits at most for a job. Work on the GPU ends with its step. A tokenizer
thread that takes longer is downloading or importing, and cannot be told to stop. The store's has had its time
before (`Store.stop`)."""

STACK_BYTES = 32 << 20
"""Stack of a worker. llguidance recurses natively where grammars nest, and macOS gives a thread 512 kB
unless told otherwise; only the pages that are touched take memory."""

_stack_size_lock = threading.Lock()
"""`threading.stack_size` holds for the whole process."""


class Worker:
    """One OS thread. It idles in a queue, runs one job at a time, and keeps nothing of a job that ended."""

    def __init__(self, purpose: Purpose, number: int, token: trio.lowlevel.TrioToken) -> None:
        self.purpose = purpose
        self.name = f"greenroom-{purpose}-{number}"
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
        # Without this the process aborts when it ends; after it, this thread can never use MLX again.
        if "mlx.core" in sys.modules:
            sys.modules["mlx.core"].clear_streams()
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.ended.set)


def _start_with_large_stack(thread: threading.Thread) -> None:
    with _stack_size_lock:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)


def release_memory() -> None:
    """Return what a dropped model held, on the thread that held it; imports nothing of MLX.

    What it launched and did not wait for may have failed: the next model on this thread would get the error.
    """
    if "mlx.core" in sys.modules:
        forget_errors()
    gc.collect()
    if "mlx.core" in sys.modules:
        sys.modules["mlx.core"].clear_cache()


class Workers:
    """The system's threads: those that are lent, the free list, and those that must not be used again.

    Args:
        hang_timeout: Seconds without a sign of life after which a thread counts as hung.
    """

    def __init__(self, hang_timeout: float = HANG_TIMEOUT) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._hang_timeout = hang_timeout
        self._count = 0
        self._lent: dict[Worker, _Loan] = {}
        self._free: list[Worker] = []
        self._quarantined: dict[Worker, _Loan] = {}
        self._leaving: list[Worker] = []

    def lend(
        self,
        purpose: Purpose,
        job: Callable[[Pulse], T],
        report: Callable[[T | JobCrashed | WorkerSilent], None],
        owner: str = "",
    ) -> Worker:
        """Run `job` on a thread of its own for as long as it takes, and watch it.

        Args:
            job: Gives its signs of life; whatever lasts for a model's whole life is one job.
            report: Is called on the Trio thread: with the job's result, or JobCrashed, when it has ended;
                before that, once, with WorkerSilent if its thread is quarantined.
            owner: The model on whose behalf, as `hung` and the logs tell.
        """
        worker = next((free for free in reversed(self._free) if free.purpose == purpose), None)
        if worker is None:
            self._count += 1
            worker = Worker(purpose, self._count, self._token)
        else:
            self._free.remove(worker)
        loan = self._lent[worker] = _Loan(owner, Pulse(), report)
        worker.put(self._returning(worker, partial(job, loan.pulse), report))
        return worker

    async def watch(self) -> None:
        """Quarantine threads that give no sign of life, until cancelled."""
        while True:
            await trio.sleep(self._hang_timeout / SILENT_TICKS)
            for worker, loan in [*self._lent.items()]:
                if loan.pulse.look():
                    fields = {"model": loan.owner, "silent_seconds": self._hang_timeout}
                    log.error("worker hangs", actor="system", worker=worker.name, **fields)
                    self.quarantine(worker)
                    loan.report(WorkerSilent(self._hang_timeout))

    def quarantine(self, worker: Worker) -> None:
        """Neither await nor reuse a silent thread any more; it ends with its job, if that ever ends."""
        if worker in self._lent:
            self._quarantined[worker] = self._lent.pop(worker)
            worker.stop()

    def hung(self, purpose: Purpose | None = None) -> Counter[str]:
        """Return how many threads are quarantined, of one purpose or of all, by owner."""
        quarantined = self._quarantined.items()
        return Counter(loan.owner for worker, loan in quarantined if purpose in (None, worker.purpose))

    def statistics(self) -> WorkersStatistics:
        """Return a snapshot for operators and tests."""
        return WorkersStatistics(len(self._lent), len(self._free), len(self._quarantined))

    async def close(self, seconds: float) -> bool:
        """End every thread that can be ended.

        Args:
            seconds: Time that jobs under way are given, once they have been told to end.

        Returns:
            Whether no thread is left; if one is, the process must end with `os._exit`.
        """
        ending = [*self._free, *self._lent, *self._leaving]
        for worker in ending:
            worker.stop()
        for purpose, most in _CLOSE_SECONDS.items():
            with trio.move_on_after(min(seconds, most), shield=True):
                for worker in ending:
                    if worker.purpose == purpose:
                        await worker.ended.wait()
        hung = [worker for worker in ending if not worker.ended.is_set() or not worker.join(1.0)]
        hung += [worker for worker in self._quarantined if not worker.ended.is_set()]
        for worker in hung:
            log.error("worker hangs", actor="system", worker=worker.name)
        return not hung

    def _returning(
        self, worker: Worker, job: Callable[[], T], report: Callable[[T | JobCrashed], None]
    ) -> Callable[[], Callable[[], None]]:
        def run() -> Callable[[], None]:
            result: T | JobCrashed
            try:
                result = job()
            except BaseException as error:  # a panic of Rust, an exit() in a model's file: no Exception
                log.exception("job crashed", actor="system", worker=worker.name)
                result = JobCrashed(f"{type(error).__name__}: {error}")
            return lambda: self._returned(worker, lambda: report(result))

        return run

    def _returned(self, worker: Worker, report: Callable[[], None]) -> None:
        if self._lent.pop(worker, None) is not None:
            self._free.append(worker)
        elif self._quarantined.pop(worker, None) is not None:
            self._leaving = [*(other for other in self._leaving if not other.ended.is_set()), worker]
        report()
