"""Bit masks of the tokens allowed next, how long they take, and the threads that compute them."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError

Bitmask = NDArray[np.uint32]
"""Bits of the vocabulary, 32 tokens per word, lowest bit first: `[ceil(vocabulary / 32)]`."""


class TokenMask:
    """The tokens allowed next in one row. `words`: one bit per token; immutable after construction; `fixed`:
    True if the mask recurs, so that its unpacked form is worth caching.
    """

    __slots__ = ("_dense", "fixed", "words")

    def __init__(self, words: Bitmask, fixed: bool = False) -> None:
        self.words = words
        self.fixed = fixed
        self._dense: tuple[int, Any] | None = None

    def allows(self, token: int) -> bool:
        return bool(self.words[token >> 5] >> np.uint32(token & 31) & np.uint32(1))

    def tokens(self) -> NDArray[np.intp]:
        """Return the allowed tokens, in ascending order."""
        return np.flatnonzero(np.unpackbits(self.words.view(np.uint8), bitorder="little"))

    def dense(self, width: int) -> Any:
        """Return the mask as an MLX array `[width]` of booleans; False beyond the vocabulary."""
        import mlx.core as mx

        if self._dense is not None and self._dense[0] == width:
            return self._dense[1]
        count = min(width, 32 * len(self.words))
        bits = np.unpackbits(self.words.view(np.uint8), count=count, bitorder="little")
        if len(bits) < width:
            bits = np.concatenate([bits, np.zeros(width - len(bits), np.uint8)])
        dense = mx.array(bits.view(np.bool_))
        if self.fixed:
            self._dense = (width, dense)
        return dense


def allow_only(tokens: Iterable[int], mask_words: int) -> TokenMask:
    bits = np.zeros(mask_words, np.uint32)
    for token in tokens:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return TokenMask(bits, fixed=True)


def allow_all_but(tokens: Iterable[int], mask_words: int) -> TokenMask:
    return TokenMask(~allow_only(tokens, mask_words).words, fixed=True)


ALLOWANCE_MS = 10.0
"""Time of a mask that a step tolerates, in milliseconds: the forward pass hides most of it."""

_PATIENCE_MS = 40.0
"""Time beyond the allowance, over one or several masks, that makes a constraint slow, in milliseconds."""

_SUSPICIOUS_MS = 20.0
"""Time of masks computed together above which each is timed alone for a while, in milliseconds."""

_PROBATION_MS = 1_000.0
"""Allowance that fast masks must save before a constraint is no longer slow, in ms; doubles each time."""

_MAX_RELAPSES = 8  # Limit on the doublings of `_PROBATION_MS`


class MaskLatency:
    """Tracks the time of a constraint's masks beyond their allowance: single masks may be slow.

    Answers under one constraint share batches. Only one of them has a job in flight at a time, so that a
    request with many choices does not occupy all threads.
    """

    def __init__(self) -> None:
        self.is_slow = False
        self._debt_ms = 0.0
        self._relapses = 0
        self._job: Job | None = None

    @property
    def is_suspect(self) -> bool:
        """True if the next mask should be timed alone."""
        return self._debt_ms > 0

    def record(self, milliseconds: float) -> None:
        self._debt_ms = max(0.0, self._debt_ms + milliseconds - ALLOWANCE_MS)
        if not self.is_slow and self._debt_ms > _PATIENCE_MS:
            self.is_slow = True
            self._debt_ms += _PROBATION_MS * 2**self._relapses
            self._relapses = min(self._relapses + 1, _MAX_RELAPSES)
        elif self._debt_ms == 0:
            self.is_slow = False

    def suspect(self, milliseconds: float) -> None:
        """Record the time of a mask computed with others; if long, the next one is timed alone."""
        if milliseconds > _SUSPICIOUS_MS:
            self._debt_ms = max(self._debt_ms, _PATIENCE_MS / 2)

    def start(self, call: Callable[[], Any]) -> Job | None:
        """Start a computation on another thread; return None while the constraint has another one running.

        Returns the running job if it hangs.
        """
        running = self._job
        if running is not None and not running.is_done:
            return running if running.is_stuck else None
        self._job = grammar_threads().submit(call)
        return self._job


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
        """Return the result, waiting for it unless the job is stuck. Raises ProblemError: the computation
        failed or hangs.
        """
        if self.is_stuck:
            detail = f"The answer cannot go on: a token's grammar took more than {MAX_JOB_SECONDS:g} s."
            raise ProblemError(Problem(400, "grammar_too_complex", detail, "response_format"))
        return self._future.result()


class GrammarThreads:
    """Runs jobs in order. A thread that hangs is abandoned and replaced."""

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
            if running is not None and running.is_stuck and self._running.pop(thread, None) is not None:
                log.error("grammar hangs", seconds=MAX_JOB_SECONDS)
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
