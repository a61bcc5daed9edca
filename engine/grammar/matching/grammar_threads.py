"""Threads on which slow grammars compute, beside the batches that need not wait for them."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import Any

import attrs
import structlog

from greenroom.schemas.problems import Problem, ProblemError

THREADS = max(1, (os.cpu_count() or 1) // 2)
"""More of them would take the processor from those who stream."""

MAX_JOB_SECONDS = 30.0
"""Seconds that a token's grammar may take; llguidance's limits end it much sooner, unless it hangs."""

_CLOSE_SECONDS = 1.0
"""Seconds for each job at the end of the process; masks within llguidance's limits take a quarter of one."""

log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class Job:
    """Something that is computed on another thread."""

    call: Callable[[], Any]
    started_at: float | None = None
    _future: Future[Any] = attrs.field(factory=Future, init=False)

    @property
    def is_done(self) -> bool:
        """Whether its result is there."""
        return self._future.done()

    @property
    def is_stuck(self) -> bool:
        """Whether it takes so long that its result will never be waited for."""
        started_at = self.started_at
        return not self.is_done and started_at is not None and time.monotonic() - started_at > MAX_JOB_SECONDS

    def run(self) -> None:
        """Compute the result."""
        self.started_at = time.monotonic()
        try:
            self._future.set_result(self.call())
        except ProblemError as error:
            self._future.set_exception(error)
        except BaseException:  # a panic in Rust is no Exception
            log.exception("grammar failed")
            problem = Problem(500, "internal_error", "The grammar failed; see the server's log.")
            self._future.set_exception(ProblemError(problem))

    def result(self) -> Any:
        """Return the result. Waits, unless the job is stuck.

        Raises:
            ProblemError: What was computed failed, or hangs.
        """
        if self.is_stuck:
            detail = f"The answer cannot go on: a token's grammar took more than {MAX_JOB_SECONDS:g} s."
            raise ProblemError(Problem(400, "grammar_too_complex", detail, "response_format"))
        return self._future.result()


class GrammarThreads:
    """Runs jobs in order. A thread that hangs in one is abandoned, and another takes its place.

    Args:
        count: Of the threads.
    """

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done = threading.Event()
        self._closed = False
        self._running: dict[threading.Thread, Job | None] = {}
        for _ in range(count):
            self._start_thread()

    def submit(self, call: Callable[[], Any]) -> Job:
        """Have something computed."""
        job = Job(call)
        self._jobs.put(job)
        return job

    def replace_stuck(self) -> None:
        """Start another thread in place of each that hangs, so that what waits behind it goes on."""
        for thread, running in [*self._running.items()]:
            if running is not None and running.is_stuck:
                log.error("grammar hangs", seconds=MAX_JOB_SECONDS)
                del self._running[thread]
                self._start_thread()

    def wait(self, seconds: float) -> None:
        """Wait until a job is done, no longer than so many seconds."""
        if self._done.wait(seconds):
            self._done.clear()

    def close(self) -> None:
        """Begin no further job, and wait for those that run, so that none is in Rust when Python ends."""
        self._closed = True
        threads = [*self._running]
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join(_CLOSE_SECONDS)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="greenroom-grammar", daemon=True)
        self._running[thread] = None
        thread.start()

    def _run(self) -> None:
        thread = threading.current_thread()
        while (job := self._jobs.get()) is not None and not self._closed:
            self._running[thread] = job
            job.run()
            if thread not in self._running:
                return
            self._running[thread] = None
            self._done.set()


@cache
def grammar_threads() -> GrammarThreads:
    """Return the threads of this process, made when first needed."""
    threads = GrammarThreads(THREADS)
    atexit.register(threads.close)
    return threads
