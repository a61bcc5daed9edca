"""Threads that compute slow grammars, so that other batches need not wait."""

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

from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError

THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Number of threads; more would take the processor from streaming requests."""

MAX_JOB_SECONDS = 30.0
"""Time limit of one token's grammar, in seconds; llguidance's limits end it sooner unless it hangs."""

_CLOSE_SECONDS = 1.0
"""Time limit of each job at process exit, in seconds; a mask within llguidance's limits takes 0.25 s."""

log = get_logger(__name__)


@attrs.define(eq=False)
class Job:
    """A computation on another thread."""

    call: Callable[[], Any]
    started_at: float | None = None
    _future: Future[Any] = attrs.field(factory=Future, init=False)

    @property
    def is_done(self) -> bool:
        return self._future.done()

    @property
    def is_stuck(self) -> bool:
        """True if the job exceeds its time limit, so that its result is given up."""
        started_at = self.started_at
        return not self.is_done and started_at is not None and time.monotonic() - started_at > MAX_JOB_SECONDS

    def run(self) -> None:
        """Compute the result."""
        self.started_at = time.monotonic()
        try:
            self._future.set_result(self.call())
        except ProblemError as error:
            self._future.set_exception(error)
        except BaseException:  # A panic in Rust is not an Exception.
            log.exception("grammar failed")
            problem = Problem(500, "internal_error", "The grammar failed; see the server's log.")
            self._future.set_exception(ProblemError(problem))

    def result(self) -> Any:
        """Return the result, waiting for it unless the job is stuck.

        Raises:
            ProblemError: The computation failed or hangs.
        """
        if self.is_stuck:
            detail = f"The answer cannot go on: a token's grammar took more than {MAX_JOB_SECONDS:g} s."
            raise ProblemError(Problem(400, "grammar_too_complex", detail, "response_format"))
        return self._future.result()


class GrammarThreads:
    """Runs jobs in order. A thread that hangs is abandoned and replaced.

    Args:
        count: Number of threads.
    """

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done = threading.Event()
        self._closed = False
        self._running: dict[threading.Thread, Job | None] = {}
        for _ in range(count):
            self._start_thread()

    def submit(self, call: Callable[[], Any]) -> Job:
        job = Job(call)
        self._jobs.put(job)
        return job

    def replace_stuck(self) -> None:
        """Start a new thread in place of each stuck one, so that queued jobs proceed."""
        for thread, running in [*self._running.items()]:
            if running is not None and running.is_stuck:
                log.error("grammar hangs", seconds=MAX_JOB_SECONDS)
                del self._running[thread]
                self._start_thread()

    def wait(self, seconds: float) -> None:
        """Wait until a job is done, for at most this many seconds."""
        if self._done.wait(seconds):
            self._done.clear()

    def close(self) -> None:
        """Start no further jobs and wait for running ones, so that none is in Rust at interpreter exit."""
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
    """Return this process's threads, started at first use."""
    threads = GrammarThreads(THREADS)
    atexit.register(threads.close)
    return threads
